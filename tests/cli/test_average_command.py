"""docmt average: the mean of models as a model that translates."""

import pytest
from commands import TINY, call, fails
from safetensors.torch import load_file

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def kept(store):
    """A run that keeps its three checkpoints."""
    path = store.parent / "kept"
    limits = ["--stop.max-steps", 6, "--validation.every=2", "--checkpoints.keep", 3]
    arguments = [argument for argument in TINY if not argument.startswith("--validation.every")]
    outcome = call("train", "--store", store, "--run", path, *arguments, *limits)
    assert outcome.status == 0, outcome.err
    return path


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "updates"),
    [
        (["{run}", "--last", 2], [4, 6]),
        (["{run}", "--best", 3], [2, 4, 6]),
        (["{run}/checkpoints/update-2", "{run}/checkpoints/update-6"], [2, 6]),
    ],
)
def test_the_mean_of_models_translates(kept, tmp_path, arguments, updates):
    output = tmp_path / "mean"
    outcome = call("average", *[str(argument).format(run=kept) for argument in arguments], "-o", output)
    assert outcome.status == 0, outcome.err
    checkpoints = [kept / "checkpoints" / f"update-{update}" for update in updates]
    assert outcome.out == f"{output}: mean of {', '.join(map(str, checkpoints))}\n"
    assert outcome.err == ""
    tensors = [load_file(checkpoint / WEIGHTS) for checkpoint in checkpoints]
    for name, tensor in load_file(output / WEIGHTS).items():
        assert tensor.equal((sum(found[name].double() for found in tensors) / len(tensors)).float())
    assert call("translate", output, "--search.beam=1", stdin=b"A lamp.\n").status == 0


def test_runs_stand_for_their_models(run, tmp_path):
    assert call("average", run, run, "-o", tmp_path / "same").status == 0
    ours, theirs = load_file(tmp_path / "same" / WEIGHTS), load_file(run / "model" / WEIGHTS)
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL and --output are missing|MODEL .*missing"),
        (["{run}"], "--output is missing"),
        (["{run}", "-o", "new"], "run is a single model: name several, or set --last N or --best N for"),
        (
            ["{run}", "--last", "2", "-o", "new"],
            "has 0 checkpoints to average, but 2 are requested: train with --checkpoints.keep 2",
        ),
        (["{run}", "--last", "2", "--best", "1", "-o", "new"], "--last and --best are both set: choose one"),
        (["{run}", "--last", "-2", "-o", "new"], "--last is -2: choose a number from 0 to 10,000"),
        (
            ["{run}/model", "--best", "2", "-o", "new"],
            "model has no checkpoints of a run: name the directory of a training run",
        ),
        (["{run}", "nowhere", "-o", "new"], "there is no directory nowhere. Name a model directory or a run directory"),
        (["{run}", "{run}", "-o", "{run}"], r"run exists already\. Remove it, or choose another --output"),
    ],
)
def test_what_cannot_be_averaged(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("average", *[argument.format(run=run) for argument in arguments], message=message)
    assert list(tmp_path.iterdir()) == []
