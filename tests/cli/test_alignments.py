"""Word alignments on the command line: records, what is refused, resuming, and the error rate."""

import json

import pytest
from commands import QUICK, call, fails

from docmt.core.errors import DocmtError
from docmt.decoding import Translator
from docmt.evaluation import read_alignments, score_alignments
from docmt.evaluation.alignment_error import AlignedPair

TEXT = "She sees the dog. It is old.\n\nIt is cheap, and it is here.\n"


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def assert_aligned(record):
    """The links of a record are words of its two sentences, each target word at most once."""
    assert record["alignment"] or not record["target"]
    for first, last, start, end in record["alignment"]:
        assert 0 <= first < last <= len(record["source"])
        assert 0 <= start < end <= len(record["target"])
        assert not {" "} & {*record["source"][first:last], *record["target"][start:end]}
    targets = [link[2:] for link in record["alignment"]]
    assert targets == sorted(targets)
    assert len(targets) == len({tuple(target) for target in targets})


@pytest.mark.full
def test_translations_with_alignments(run, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    plain = rows(call("translate", run, tmp_path / "in.txt", "--format", "jsonl", *QUICK).out)
    aligned = rows(call("translate", run, tmp_path / "in.txt", "--format", "jsonl", *QUICK, "--alignments").out)
    assert len(aligned) == 3
    for record in aligned:
        assert_aligned(record)
    assert [{key: value for key, value in record.items() if key != "alignment"} for record in aligned] == plain


def test_text_cannot_hold_alignments(run, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    message = r"--alignments needs --format jsonl: text has no record of a sentence"
    fails("translate", run, tmp_path / "in.txt", "--alignments", message=message)
    fails("translate", run, "--alignments", stdin=TEXT.encode(), message=message)
    fails("score", run, tmp_path / "in.txt", tmp_path / "in.txt", "--alignments", message=message)


def test_resuming_needs_the_same_alignments(run, tmp_path, monkeypatch):
    lines = [json.dumps({"source": [sentence]}) + "\n" for sentence in ("It is old.", "It is cheap.", "She sees it.")]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    command = ["translate", run, tmp_path / "in.jsonl", *QUICK, "--batch-tokens", 1]
    expected = call(*command, "--alignments").out
    command += ["-o", tmp_path / "out.jsonl"]
    align = Translator.align

    def interrupt(self, parts):
        if parts[0].document:
            raise KeyboardInterrupt
        return align(self, parts)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "align", interrupt)
        assert "run the same command with --resume" in call(*command, "--alignments").err
    fails(*command, "--resume", message=r"started with another --alignments")
    assert call(*command, "--resume", "--alignments").status == 0
    assert (tmp_path / "out.jsonl").read_text() == expected


def test_a_part_that_cannot_be_aligned_is_an_error_of_its_own(run, tmp_path, monkeypatch):
    align = Translator.align

    def fail(self, parts):
        if any("old" in part.source.text() for part in parts):
            raise DocmtError("the weights are not finite numbers")
        return align(self, parts)

    monkeypatch.setattr(Translator, "align", fail)
    (tmp_path / "in.jsonl").write_text('{"source": ["It is old."]}\n{"source": ["It is cheap."]}\n')
    outcome = call("translate", run, tmp_path / "in.jsonl", "--alignments", *QUICK)
    first, second = rows(outcome.out)
    assert outcome.status == 2
    assert first["error"] == "the weights are not finite numbers" and "target" not in first
    assert_aligned(second)


def test_supplied_translations_with_alignments(run, corpus, tmp_path):
    sides = [corpus / "test.en", corpus / "test.de"]
    scored = rows(call("score", run, *sides, "--format", "jsonl", "--alignments").out)
    for record in scored:
        assert_aligned(record)
    plain = rows(call("score", run, *sides, "--format", "jsonl").out)
    assert [{key: value for key, value in record.items() if key != "alignment"} for record in scored] == plain


@pytest.fixture
def gold(tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_text("It is old .\tEr ist alt .\t1-1 2-2 3p3 4-4\nMr. Li 's dog\tLis Hund\t2-1 3p1 4-2\n")
    return path


def test_the_error_rate_by_hand(gold):
    first, second = read_alignments(gold)
    assert (first.source, first.sure) == (("It", "is", "old", "."), {(0, 0), (1, 1), (3, 3)})
    assert first.possible == first.sure | {(2, 2)}
    # Three links, of which two are sure and one is possible; then a sure one and a wrong one.
    links = [frozenset({(0, 0), (1, 1), (2, 2)}), frozenset({(3, 1), (0, 0)})]
    score = score_alignments([first, second], links)
    assert score.precision == pytest.approx(4 / 5)
    assert score.recall == pytest.approx(3 / 5)
    assert score.aer == pytest.approx(1 - (3 + 4) / (5 + 5))
    assert score.links == 5
    perfect = score_alignments([first, second], [first.sure, second.possible])
    assert (perfect.aer, perfect.precision, perfect.recall) == (0, 1, 1)
    nothing = score_alignments([first], [frozenset()])
    assert (nothing.aer, nothing.precision, nothing.recall) == (1, 1, 0)


def test_characters_become_tokens():
    pair = AlignedPair(("Mr.", "Li"), ("Herr", "Li"), frozenset(), frozenset())
    assert pair.match([((0, 2), (0, 4)), ((2, 3), (0, 4)), ((4, 6), (5, 7))]) == {(0, 0), (1, 1)}


def test_the_error_rate_of_models(run, others, gold, tmp_path):
    single = call("evaluate", "--model", run, "--aer", gold)
    assert single.status == 0
    head, line = single.out.splitlines()
    assert head.split() == ["system", "AER", "precision", "recall", "links"]
    several = call("evaluate", "--model", run, *others, "--aer", gold, "--json", tmp_path / "aer.json")
    values = json.loads((tmp_path / "aer.json").read_text())
    assert (values["gold"], values["sentences"], len(values["systems"])) == (str(gold), 2, 3)
    assert several.out.count("\n") == 4
    for entry in values["systems"]:
        assert f"{100 * entry['aer']:.1f}" == line.split()[1]
        assert 0 <= entry["aer"] <= 1 and entry["links"] == int(line.split()[4])
    page = call("evaluate", "--model", run, "--aer", gold, "--markdown", "-").out
    assert page.startswith("| system |") and page.count("\n") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\tc\n", r"line 1 has 2 columns: write source tokens, target tokens and links"),
        ("a b\tc\t1-1 0-1\n", r"line 1 has the link '0-1': write 3-2 \(sure\)"),
        ("a b\tc\t1-2\n", r"line 1 has the link '1-2'.*of 2 and 1"),
        ("\n", r"holds no sentence pairs"),
    ],
)
def test_a_file_with_other_contents_is_refused(run, tmp_path, text, message):
    (tmp_path / "gold.tsv").write_text(text)
    fails("evaluate", "--model", run, "--aer", tmp_path / "gold.tsv", message=message)


def test_what_has_no_alignments_is_refused(run, corpus, gold):
    fails("evaluate", "--aer", gold, message="--aer needs models: name them with --model")
    message = "test.de is a file, but --aer reads the attention of models"
    fails("evaluate", "--hypothesis", corpus / "test.de", "--aer", gold, message=message)
    message = "--aer has no use for --reference, --search.beam: leave it out"
    options = ["--reference", corpus / "test.de", "--beam", 2]
    fails("evaluate", "--model", run, "--aer", gold, *options, message=message)
