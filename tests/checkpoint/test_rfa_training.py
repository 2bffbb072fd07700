"""Full batches and four updates of the RFA authors' code, which has faults that `rfa_faults` adds.

docmt's optimiser has no weight decay: the step is theirs, written down here (Adam, decoupled decay), on gradients of
docmt's model.
"""

import numpy as np
import pytest
import rfa
import rfa_faults
import torch
from test_rfa_parity import in_their_order, models, set_features, smoothed_losses

__all__ = ["models"]


def record_output(outputs, name, module):
    """Record the first output of a module under a name."""
    module.register_forward_hook(lambda module, inputs, output: outputs.update({name: outputs.get(name, output)}))


@pytest.mark.full
@pytest.mark.parametrize("variant", rfa.LINEAR)
def test_whole_batches_with_their_faults(variant, models, monkeypatch):
    """The outputs of every layer and attention, and the logits."""
    stored = np.load(rfa.FIXTURES.needed(variant, "out_L4.npz"))
    if "logits" not in stored.files:
        pytest.skip(f"{variant} has only rows alone in {rfa.FIXTURES.path}")
    model = models(variant)
    batch, row = rfa.inputs(model, 4)
    rfa_faults.add_faults(monkeypatch, model, batch.inputs.source)
    outputs = {}
    for number, layer in enumerate(model.decoder):
        record_output(outputs, f"decoder_self_attn{number}", layer.attention)
        record_output(outputs, f"decoder_cross_attn{number}", layer.cross)
        record_output(outputs, f"decoder_inner{number + 1}", layer)
    record_output(outputs, "encoder_layer0", model.encoder[0])
    with torch.no_grad():
        outputs["logits"] = in_their_order(model.project(model(batch.inputs)))
    for name in set(outputs) & set(stored.files):
        padded = row["src_tokens" if name.startswith("encoder") else "prev_output_tokens"]
        torch.testing.assert_close(outputs[name], rfa.real(stored[name], padded), rtol=0, atol=2e-5)
    alone, together = (rfa.real(stored[name], row["prev_output_tokens"]) for name in ("logits_alone", "logits"))
    has_faults = model.config.linear.rescale_keys or model.config.linear.gate != "none"
    assert (float((together - alone).abs().max()) > 0.01) == has_faults


@pytest.mark.full
def test_four_updates_lead_to_the_same_weights(models, monkeypatch):
    record = rfa.read_json(".", "train_steps.json")
    stored = np.load(rfa.FIXTURES.needed(".", "train_steps.npz"))
    model = models(record["variant"])
    batch, _ = rfa.inputs(model, record["batch_L"])
    rfa_faults.add_faults(monkeypatch, model, batch.inputs.source)
    evaluated = model.decoder[0].attention.global_.features.matrices.clone()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for number, step in enumerate(record["steps"]):
        # They add epsilon before they correct the bias of the second moment.
        optimizer.param_groups[0].update(lr=step["lr"], eps=1e-8 / (1 - 0.98 ** (number + 1)) ** 0.5)
        set_features(model, stored[f"causal_matrices_{number}"], stored[f"cross_matrices_{number}"])
        optimizer.zero_grad()
        loss = smoothed_losses(model, batch).sum()
        assert loss.item() == pytest.approx(step["loss_sum"], rel=1e-5)
        (loss / record["sample_size"]).backward()
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
        assert norm.item() == pytest.approx(step["grad_norm"], rel=1e-5)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= step["lr"] * record["weight_decay"] * parameter
        optimizer.step()
    parameters, compared = dict(model.named_parameters()), set()
    for name, wanted in record["final_norms"].items():
        docmt_name = rfa.docmt_name(name)
        if docmt_name in parameters:
            compared.add(docmt_name)
            if not (name.startswith("encoder.layers") and name.endswith("k_proj.bias")):  # which has no effect
                assert parameters[docmt_name].norm().item() == pytest.approx(wanted, rel=1e-5), name
    assert compared == set(parameters)
    for name in stored.files:
        if name == "final/decoder.random_matrices_eval":
            torch.testing.assert_close(evaluated, torch.from_numpy(stored[name]).double())
        elif name.startswith("final/"):
            wanted = rfa.in_docmt_order(name, torch.from_numpy(stored[name]).double())
            torch.testing.assert_close(parameters[rfa.docmt_name(name[6:])].detach(), wanted, rtol=1e-5, atol=1e-6)
