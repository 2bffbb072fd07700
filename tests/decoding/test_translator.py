"""The Python interface: what can be translated, options, streams, ensembles by name, devices, repr."""

import logging
import shutil
from dataclasses import replace

import pytest
import torch

import docmt
from docmt.checkpoint.model_directory import choose_device, save_model
from docmt.cli.commands.evaluate import cut_units
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.documents import ParallelDocument
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.model.systems import Group
from docmt.text import BpeTokenizer

TEXT = "# A heading\n\nAnna bought a lamp. It is cheap.\n\n  - It is here.\n"
SHORT_SEARCH = docmt.SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)


def save(directory, seed=0, words=("a few words", "a few more words"), languages=("en", "de"), **options):
    torch.manual_seed(seed)
    sizes = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    group = {} if "system" in options else {"group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)}
    model = TranslationModel(ModelConfig(vocabulary_size=264, **sizes, **group, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # so that other words have other translations
    card = {"source_language": languages[0], "target_language": languages[1]}
    save_model(directory, model, BpeTokenizer.train(list(words), 264), card)
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def translator(directory):
    return docmt.Translator(directory, search=SHORT_SEARCH)


def test_text_for_text(translator):
    document = docmt.Document.from_text(TEXT)
    translation = translator.translate(document)
    text = translator.translate(TEXT)
    assert type(text) is str
    assert text == translation.text() == str(translation) == f"{translation}"
    assert text.startswith("# ") and text.endswith("\n") and text.count("\n") == TEXT.count("\n")
    assert len(translation) == len(document) == 4


def test_addresses_come_out_as_they_are(directory):
    """In the sentence, its spans, its alternatives, its word links, and in parts."""
    search = docmt.SearchConfig(beam=2, n_best=2)
    translator = docmt.Translator(directory, search=search, device="cpu")
    source = docmt.Document.from_text("It is old. Visit https://a.org/b?c=d or write to me@b.org. It ends.")
    (translation,) = translator.align([translator.translate(source)])
    ((part,),) = translator.stream_parts([source])
    assert part.source == source and part.translation.text() == translation.text()
    for each in (translation, *translation.alternatives):
        for sentence, text in zip(each, source.sentences, strict=True):
            assert source.text()[slice(*sentence.source_span)] == sentence.source == text
            assert each.text()[slice(*sentence.target_span)] == sentence.target
        assert "https://a.org/b?c=d" in each.sentences[1].target and "me@b.org" in each.sentences[1].target
    sentence = translation.sentences[1]
    links = {sentence.source[slice(*link.source)]: sentence.target[slice(*link.target)] for link in sentence.alignment}
    assert links["org"] == "org" and links["me"] == "me"
    assert "https://a.org/b?c=d" in translator.translate("See https://a.org/b?c=d.")


def test_a_list_for_a_list(translator):
    texts = ["It is here.", "", TEXT, " \n "]
    assert translator.translate(texts) == [translator.translate(text) for text in texts]
    assert translator.translate(tuple(texts)) == translator.translate(texts)
    documents = [docmt.Document.from_text(text) for text in texts]
    for translations in (translator.translate(documents), translator.translate_all(texts)):
        assert [translation.text() for translation in translations] == translator.translate(texts)
    one, other = translator.translate([documents[0], texts[2]])
    assert [one.text(), other] == translator.translate([texts[0], texts[2]])
    assert translator.translate([]) == translator.translate_all([]) == []


def test_warnings_about_a_text_are_logged(directory, caplog):
    """A text has no place for warnings; a Translation has."""
    translator = docmt.Translator(directory, search=docmt.SearchConfig(beam=1, max_length_ratio=0, max_length_extra=1))
    translations = translator.translate_all([TEXT, "It is here."])
    assert [warnings for translation in translations for warnings in translation.warnings()] == [["length_limit"]] * 5
    assert caplog.messages == []
    translator.translate([TEXT, docmt.Document.from_text(TEXT), "It is here."])
    assert caplog.messages == ["5 x length_limit. Translate a Document to see where (Translation.warnings)."]


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\n\n ", "---\n"])
def test_text_without_words_stays_as_it_is(translator, text):
    assert translator.translate(text) == text
    assert translator.translate([text, text]) == [text, text]
    assert translator.translate(docmt.Document.from_text(text)).sentences == ()


def test_the_models_language_segments_text(tmp_path):
    german = docmt.Translator(save(tmp_path / "m", languages=("de", "en")), search=SHORT_SEARCH)
    text = "Am 3. Oktober kam er. Sie ging."
    assert german.languages == ("de", "en")
    assert len(german.translate_all([text])[0]) == len(docmt.Document.from_text(text, language="de")) == 2
    assert german.score("Er kam. Sie ging.", "He came. She left.").sentences[1].target == "She left."


@pytest.mark.parametrize(
    "value", [None, 3, b"text", {"a": 1}, {"x"}, iter(["a"]), ParallelDocument("1", ("a",), ("b",))]
)
def test_other_values_are_refused_in_one_sentence(translator, value):
    for call in (translator.translate, lambda item: translator.translate(["good", item])):
        with pytest.raises(DocmtError, match=r"is not a document\. Give text, a Document, or a list of them") as caught:
            call(value)
        assert "\n" not in str(caught.value)


def test_a_path_is_no_text(translator, tmp_path):
    with pytest.raises(DocmtError, match=r"PosixPath is not a document.*Document\.read reads a file"):
        translator.translate(tmp_path)
    for call in (translator.translate_all, translator.stream):
        for one in ("text", docmt.Document.from_text("text")):
            with pytest.raises(DocmtError, match="one document is not a list of documents"):
                call(one)
        with pytest.raises(DocmtError, match="int is not a list of documents"):
            call(3)


def test_scores_of_supplied_translations_do_not_depend_on_the_length_limit(directory):
    usual = docmt.Translator(directory)
    words = len(usual.tokenizer.encode("It is old.", "target"))
    tight = docmt.Translator(directory, search=docmt.SearchConfig(max_length_ratio=0, max_length_extra=words))
    one, other = (each.score("It is old.", "It is old.").sentences[0].score for each in (usual, tight))
    assert one == pytest.approx(other)
    assert tight.score_all([("It is old.", "It is old.")], free_at_limit=True)[0].sentences[0].score > other


def test_values_that_are_not_pairs_are_refused(translator):
    for pair in (("a", "b", "c"), "ab"):
        with pytest.raises(DocmtError, match=r"is not a pair\. Give \(source, target\) for each document\.$"):
            translator.score_all([pair])


def test_options_of_the_search(directory):
    two = docmt.Translator(directory, search=replace(SHORT_SEARCH, n_best=2))
    assert two.search == replace(SHORT_SEARCH, n_best=2)
    assert len(two.translate_all(["A few words."])[0].alternatives) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": {"beam": 3}}, r"search is \{.beam.: 3\}\. Give a docmt.SearchConfig\.$"),
        ({"context": 3}, r"context is 3\. Give a docmt.ContextConfig\.$"),
        ({"batch_tokens": 0}, r"batch_tokens is 0: choose a number from 1"),
        ({"batch_tokens": "many"}, r"batch_tokens is 'many': give a whole number"),
        ({"precision": "float16"}, "precision is 'float16': choose one of float32, bfloat16"),
        ({"device": "tpux"}, "device tpux cannot be used here .no such device.: choose cpu"),
        ({"device": 3.5}, "device 3.5 cannot be used here"),
        ({"device": "meta"}, "device meta cannot be used here"),
    ],
)
def test_options_that_do_not_fit(directory, options, message):
    with pytest.raises(DocmtError, match=message) as caught:
        docmt.Translator(directory, **options)
    assert "\n" not in str(caught.value)


def test_a_stream_reads_what_it_needs(translator):
    texts = [f"It is number {number}." for number in range(7)]
    read = []

    def inputs():
        for text in texts:
            read.append(text)
            yield text if len(read) % 2 else docmt.Document.from_text(text, id=str(len(read)))

    stream = translator.stream(inputs(), group=3)
    assert read == []
    first = next(stream)
    assert read == texts[:3]
    translations = [first, *stream]
    assert [translation.text() for translation in translations] == translator.translate(texts)
    assert [translation.document.id for translation in translations] == ["", "2", "", "4", "", "6", ""]
    assert read == texts
    assert list(translator.stream([])) == []


def test_one_that_fails_does_not_stop_a_stream(translator):
    bad = docmt.Document.from_sentences(["\ud800"], id="bad")
    documents = ["It is here.", bad, "A few words.", None, "More."]
    wanted = [translation.text() for translation in translator.translate_all(documents[::2])]
    results = list(translator.stream(documents, group=3, errors="yield"))
    assert [translation.text() for translation in results[::2]] == wanted
    assert all(isinstance(error, DocmtError) for error in results[1::2])
    assert str(results[1]).startswith("document 2 (bad): ")
    assert str(results[3]).startswith("document 4: NoneType is not a document")
    texts = []
    with pytest.raises(DocmtError, match=r"document 2 \(bad\): "):
        texts += (translation.text() for translation in translator.stream(documents))
    assert texts == wanted[:1]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"errors": "skip"}, "errors is 'skip': choose one of raise, yield"), ({"group": 0}, "group is 0")],
)
def test_stream_options_are_checked(translator, options, message):
    with pytest.raises(DocmtError, match=message):
        translator.stream([], **options)  # at once, not when the first is asked for


def test_scores_of_supplied_texts(translator):
    source, target = "It is here. A few words.", "Some words. More words."
    scored = translator.score(source, target)
    assert scored == translator.score(docmt.Document.from_text(source), docmt.Document.from_text(target, language="de"))
    assert [sentence.target for sentence in scored] == ["Some words.", "More words."]
    assert scored.score < 0
    with pytest.raises(DocmtError, match="has 2 source but 1 target sentences"):
        translator.score(source, "One.")


def test_a_translation_is_scored_by_the_tokens_that_the_search_found(directory):
    """Its text has other tokens: a tokenizer splits a word in one way, and a search may spell it in another."""
    search = docmt.SearchConfig(beam=2, n_best=2)
    translator = docmt.Translator(directory, search=search, device="cpu")
    source = docmt.Document.from_text(f"{TEXT}Read /etc/passwd now.")
    best = translator.translate(source)
    texts = translator.score(source, best.document)
    assert any(texts.sentences[n].score != pytest.approx(each.score, abs=0.01) for n, each in enumerate(best))
    for translation in (best, *best.alternatives):
        (scored,) = translator.score_all([(source, translation)], free_at_limit=True)
        assert [each.score for each in scored] == pytest.approx([each.score for each in translation], abs=1e-4)
        assert [list(each.token_ids) for each in scored] == [list(each.token_ids) for each in translation]
        assert scored.document == translation.document


def test_a_translation_without_tokens_is_scored_as_a_text(translator):
    """That of a server has none."""
    source = docmt.Document.from_sentences(["It is here.", "A few words."])
    searched = translator.translate(source)
    known = tuple(replace(each, token_ids=()) if not number else each for number, each in enumerate(searched))
    scored = translator.score(source, replace(searched, sentences=known))
    assert scored == translator.score(source, searched.document)


def test_an_ensemble_by_name(directory, tmp_path):
    other = save(
        tmp_path / "other", seed=3, system="group", group=Group(encoder_layers=0, decoder_layers=1, cross_layers=1)
    )
    one, twice = (
        docmt.Translator(directory, search=SHORT_SEARCH),
        docmt.Translator([directory, directory], search=SHORT_SEARCH),
    )
    (translation,), (wanted,) = twice.translate_all([TEXT]), one.translate_all([TEXT])
    assert translation.text() == wanted.text()
    assert translation.score == pytest.approx(wanted.score, abs=1e-6)
    named = docmt.Translator(f"{directory}, {other}", search=SHORT_SEARCH)
    listed = docmt.Translator([directory, str(other)], search=SHORT_SEARCH)
    (translation,), (wanted,) = named.translate_all([TEXT]), listed.translate_all([TEXT])
    assert translation == wanted
    assert len(named.models) == 2
    scored = named.score(docmt.Document.from_text(TEXT), docmt.Document.from_text(TEXT))
    singles = [
        docmt.Translator(path, search=SHORT_SEARCH).score(*[docmt.Document.from_text(TEXT)] * 2)
        for path in (directory, other)
    ]
    worst, best = sorted(single.score for single in singles)
    assert worst < scored.score < best or scored.score == pytest.approx(best, abs=0.1)
    with pytest.raises(DocmtError, match=r"this translator has 2 models\. Use `models`"):
        _ = named.model
    assert repr(named).startswith(f"<Translator: {directory},{other} (group + group) on cpu in float32, ")
    document = ParallelDocument("", ("a",) * 3, ("a",) * 3)
    assert cut_units(named, document) == cut_units(one, document)


def test_an_existing_path_with_a_comma_is_one_model(directory, tmp_path):
    shutil.copytree(directory, tmp_path / "a,b")
    assert docmt.Translator(str(tmp_path / "a,b")).model.config.width == 16
    assert docmt.Translator(tmp_path / "a,b").model.config.width == 16


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("{model},", "lacks the name of a model"),
        ([], "lacks the name of a model"),
        (5, "5 is not a model. Give the path"),
        (["{model}", None], "None is not a model. Give the path"),
        ("{model},{folder}/none", "there is no directory .*none"),
        ("{model},{folder}/words", "model and .*words cannot form an ensemble: their tokenizers differ"),
        ("{model},{folder}/french", "model and .*french cannot form an ensemble: they translate en-de and en-fr"),
        ("{model},{folder}/sentence", r"decode differently .documents and sentences.\. Choose models of one system"),
    ],
)
def test_names_that_make_no_ensemble(directory, tmp_path, names, message):
    save(tmp_path / "words", words=("quite other text", "than before"))
    save(tmp_path / "french", languages=("en", "fr"))
    save(tmp_path / "sentence", system="sentence")
    with pytest.raises(DocmtError, match=message) as caught:
        docmt.Translator(names.format(model=directory, folder=tmp_path) if isinstance(names, str) else names)
    assert "\n" not in str(caught.value)


def test_members_that_say_no_language_go_with_all(directory, tmp_path):
    for name, languages in (("silent", ("", "")), ("half", ("en", "")), ("french", ("en", "fr"))):
        save(tmp_path / name, languages=languages)
    members = [tmp_path / "silent", tmp_path / "half", directory]
    assert docmt.Translator(members).languages == ("en", "de")
    with pytest.raises(DocmtError, match="they translate en-de and en-fr"):
        docmt.Translator([*members, tmp_path / "french"])


def test_a_device_is_chosen_and_logged(directory, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.INFO, "docmt"):
        assert docmt.Translator(directory).device == torch.device("cpu")
    assert caplog.messages == [f"{directory} (group) on cpu in float32"]
    assert docmt.load_model(directory, device="auto").device == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines whose GPU does not work")
def test_a_gpu_that_does_not_work_is_not_chosen(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cpu")
    assert caplog.messages == ["device cuda cannot be used here (no such device). Using the CPU"]
    with pytest.raises(DocmtError, match="device cuda cannot be used here"):
        choose_device("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_auto_takes_the_gpu(directory):
    on_gpu, on_cpu = (
        docmt.Translator(directory, search=SHORT_SEARCH),
        docmt.Translator(directory, search=SHORT_SEARCH, device="cpu"),
    )
    assert on_gpu.device.type == "cuda"
    (translation,), (wanted,) = on_gpu.translate_all([TEXT]), on_cpu.translate_all([TEXT])
    assert translation.score == pytest.approx(wanted.score, abs=1e-3)
    assert docmt.Translator([directory] * 2, search=SHORT_SEARCH, precision="bfloat16").translate(TEXT).count("\n") == 5


def test_repr_is_one_short_line(translator, tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("It is here.\nA few words.\n\n" * 30)
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    prepare(PrepareConfig(store=tmp_path / "store", train=files, dev=files, vocabulary_size=270))
    document = docmt.Document.from_text(TEXT, id="report.txt")
    translation = translator.translate(document)
    long = docmt.Document.from_sentences(["word " * 50] * 3, id="a/long/path/" * 9)
    cases = {
        "Document": (document, "<Document 'report.txt': 4 sentences, 'A heading'>"),
        "long Document": (
            long,
            f"<Document {('a/long/path/' * 9)[:39] + '…'!r}: 3 sentences, {('word ' * 50)[:39] + '…'!r}>",
        ),
        "empty Document": (docmt.Document.from_text(""), "<Document: 0 sentences>"),
        "Translation": (translation, f"<Translation 'report.txt': 4 sentences, {translation.sentences[0].target!r}>"),
        "TranslatedSentence": (translation.sentences[0], "<TranslatedSentence 'A heading' -> '"),
        "ParallelDocument": (ParallelDocument("7", ("a",), ("b",)), "<ParallelDocument '7': 1 sentence, 'a'>"),
        "PreparedStore": (
            PreparedStore.open(tmp_path / "store"),
            f"<PreparedStore '{tmp_path / 'store'}': train 30 documents, dev 30 documents>",
        ),
        "TranslationModel": (
            translator.model,
            "<TranslationModel: 0.0 million parameters on cpu, ModelConfig(vocabulary_size=264, width=16, ",
        ),
        "SearchConfig": (SHORT_SEARCH, "SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)"),
        "default": (docmt.SearchConfig(), "SearchConfig()"),
        "ModelConfig": (ModelConfig(group=Group(gate_bias=3.0)), "ModelConfig(group=Group(gate_bias=3.0))"),
        "Packed": (pack([[[0, 5, 2], [0, 2]], [[0, 2]]]), "<Packed: 7 tokens, 3 sentences, 2 documents>"),
    }
    for name, (value, wanted) in cases.items():
        assert repr(value).startswith(wanted) and "\n" not in repr(value), (name, repr(value))
        assert len(repr(value)) < 300, name
    assert eval("ModelConfig(group=Group(gate_bias=3.0))") == ModelConfig(group=Group(gate_bias=3.0))


def test_len_and_iteration_are_over_sentences(translator):
    document = docmt.Document.from_sentences(["one", "two"])
    assert (len(document), list(document), str(document)) == (2, ["one", "two"], "one\ntwo\n")
    translation = translator.translate(document)
    assert (len(translation), tuple(translation)) == (2, translation.sentences)
    assert [str(sentence) for sentence in translation] == [sentence.target for sentence in translation.sentences]
    pair = ParallelDocument("1", ("a", "b"), ("c", "d"))
    assert (len(pair), list(pair)) == (2, [("a", "c"), ("b", "d")])
