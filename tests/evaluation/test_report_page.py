"""The page on several systems says what the tables say, shows what differs, and requests and runs nothing."""

import random
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from docmt.core.errors import DocmtError
from docmt.core.html_page import mark_spans
from docmt.evaluation import MetricConfig, SignificanceConfig, compare, evaluate_documents
from docmt.evaluation.report_page import MOST_DOCUMENTS, MOST_SENTENCES, _find_differences, render_report

CONFIG = SignificanceConfig(samples=200)
HOSTILE = '<script>alert(1)</script> & <img src="http://x.example/y" onerror=z> \u202e'


def damage(texts, share, seed):
    generator = random.Random(seed)

    def change(word):
        return "x" if generator.random() < share else word[0]

    return [[re.sub(r"\w+", change, text) for text in each] for each in texts]


@pytest.fixture
def corpus():
    """Thirty documents: sources, references and three systems, one of which equals the second but for a document."""
    generator = random.Random(1)
    words = ["haus", "baum", "katze", "geht", "steht", "alt", "neu", "und", "oder", "nicht"]
    counts = [number % 4 + 1 for number in range(30)]
    references = [[" ".join(generator.choices(words, k=8)) + "." for _ in range(count)] for count in counts]
    references[3][0] = HOSTILE
    first, second = damage(references, 0.2, 2), damage(references, 0.4, 3)
    first[3][0], second[3][0] = f"{HOSTILE} eins", "zwei"
    third = [["ganz anders" for _ in each] if number == 7 else each for number, each in enumerate(second)]
    sources = [
        (f"doc <{number}>", [f"source {number}.{index}" for index in range(count)])
        for number, count in enumerate(counts)
    ]
    return sources, references, {"a<b>": first, "second": second, "third": third}


def render(corpus, title="a <title>", metrics=()):
    sources, references, systems = corpus
    config = MetricConfig(names=list(metrics))
    evaluations = {name: evaluate_documents(texts, references, config) for name, texts in systems.items()}
    return render_report(title, compare(evaluations, CONFIG), sources, references, systems), evaluations


def test_nothing_is_requested_or_run_and_the_markup_is_whole(corpus):
    page, _ = render(corpus)
    assert "<script" not in page and "<img" not in page and "\u202e" not in page and "a<b>" not in page
    assert "a &lt;title&gt;" in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in re.sub("</?mark>", "", page)
    assert "default-src 'none'" in page and not re.search(r"url\(|@import|<link|<iframe|javascript:|<a ", page)
    assert not re.search(r'(src|href)="', page)
    opened = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: opened.append(tag) if tag not in ("meta", "br") else None
    parser.handle_endtag = lambda tag: opened.pop() == tag or pytest.fail(f"</{tag}> closes nothing")
    parser.feed(page)
    assert opened == []


def test_the_tables_are_those_of_the_comparison(corpus):
    page, evaluations = render(corpus)
    comparison = compare(evaluations, CONFIG)
    texts = [unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in re.findall(r"<t[dh]>(.*?)</t[dh]>", page)]
    assert texts[: sum(map(len, comparison.rows()))] == [cell for row in comparison.rows() for cell in row]
    pair = compare({name: evaluations[name] for name in ("second", "third")}, CONFIG)
    for each, system in ((comparison, 1), (comparison, 2), (pair, 1)):
        for outcomes in each.outcomes.values():
            difference = outcomes[system].difference
            cell = f"{difference.value:+.2f}, p {difference.p_value:.4f}"
            assert (f"<b>{cell}</b>" if difference.is_significant else f"<td>{cell}</td>") in page
    assert f"30 documents, {sum(map(len, corpus[1]))} sentences" in page


def test_the_documents_that_differ_most_come_first(corpus):
    page, evaluations = render(corpus)
    shown = [int(number) for number in re.findall(r"<summary>document doc &lt;(\d+)&gt;", page)]
    scores = [each.d_chrf.formula(each.d_chrf.by_document(30)) for each in evaluations.values()]
    spread = [max(values) - min(values) for values in zip(*scores, strict=True)]
    assert shown == sorted(range(30), key=lambda number: -spread[number])[:MOST_DOCUMENTS]
    points = re.findall(r"<title>doc &lt;(\d+)&gt;: a&lt;b&gt; (\S+), (second|third) (\S+)</title>", page)
    assert len(points) == 60
    assert points[7][1:] == (f"{scores[0][7]:.1f}", "second", f"{scores[1][7]:.1f}")
    assert page.count("<svg") == 3 and page.count("chrF by position") == page.count("s-BLEU by position") == 1


def test_pictures_show_the_metrics_of_the_tables_and_name_systems_without_sentences(corpus):
    sources, references, systems = corpus
    systems["third"] = [[" ".join(each)] for each in systems["third"]]
    page, _ = render((sources, references, systems), metrics=("chrf++", "d-chrf++"))
    assert "d-chrF++ of each document" in page and "documents that differ most in d-chrF++<" in page
    assert "chrF++ by position of sentences in documents, without third: other sentences" in page


def test_words_that_differ_are_marked(corpus):
    assert _find_differences("Der Hund lief.", "Der alte Hund lief!") == ([(13, 14)], [(4, 8), (18, 19)])
    assert _find_differences("a b", "a b") == ([], [])
    sources, references = [("d", ["One.", "Two.", "Three."])], [["Eins.", "Zwei.", "Drei."]]
    systems = {"one": [["Eins.", "Zwei.", "Drei."]], "two": [["Eins.", "Zwei.", "Vier."]]}
    sources, references = sources * 2, references * 2
    page, _ = render((sources, references, {name: texts * 2 for name, texts in systems.items()}))
    assert page.count("<mark>Vier</mark>") == page.count("<mark>Drei</mark>") == 2
    assert page.count('<div class="sentence">') == 4 and "One." not in page, "only the sentence before is shown, too"


def test_characters_are_marked_in_scripts_without_spaces():
    assert _find_differences("我需要它。", "我需要书。") == ([(3, 4)], [(3, 4)])


def test_names_of_systems_do_not_set_the_direction_of_texts(corpus):
    page, _ = render(corpus)
    assert page.count('<p dir="auto"><span class="less" dir="auto">') == page.count('<p dir="auto">') > 100


def test_twelve_systems_differ_in_color_or_shape(corpus):
    sources, references, systems = corpus
    page, _ = render((sources, references, {str(number): systems["second"] for number in range(12)}))
    assert len(set(re.findall(r'<span class="key[^>]*>', page))) == 12
    assert len(set(re.findall(r'r="4" ([^/]*)/>', page))) == 12


def test_a_single_system_is_refused(corpus):
    sources, references, systems = corpus
    with pytest.raises(DocmtError, match="cannot compare 1 system"):
        render((sources, references, {"second": systems["second"]}))


def test_marks_of_several_systems_may_overlap(corpus):
    assert mark_spans("ab cd <ef", [(3, 5), (0, 5), (3, 8)]) == "<mark>ab cd</mark><mark> &lt;e</mark>f"
    sources, references = [("d", ["s"])] * 2, [["a b c d"]] * 2
    systems = {"source": [["a b c d"]] * 2, "reference": [["a x c d"]] * 2, "joined": [["a x y z"]] * 2}
    page, _ = render((sources, references, systems))
    assert page.count("</span> source</span><br>a <mark>b</mark><mark> c d</mark>") == 2


def test_other_numbers_of_sentences_are_shown_as_one(corpus):
    sources, references, systems = corpus
    page, _ = render((sources, references, {**systems, "joined": [[" ".join(each)] for each in systems["second"]]}))
    assert "<title>third, sentence 2: " in page and "<title>joined, sentence" not in page
    assert re.search(r"source \d+\.0 source \d+\.1 ", page)


def test_long_documents_are_cut_and_say_so():
    count = MOST_SENTENCES + 5
    sources, references = [("d", ["s"] * count)] * 2, [["r"] * count] * 2
    systems = {"one": [["eins"] * count] * 2, "two": [["zwei"] * count, ["zwei r"] * count]}
    page, _ = render((sources, references, systems))
    assert "... and more, 5 of them with differences" in page
    assert page.count('<div class="sentence">') == MOST_SENTENCES
