"""Blocks of templates keep their order, and enclose the translation of what they enclosed, in all formats."""

import json
import re

import pytest

from docmt.documents import Document
from docmt.documents.columns import find_template_tags, match_blocks
from docmt.documents.words import find_words
from docmt.formats import gettext_files, html_pages, json_files, markdown_texts
from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import ReadConfig

LANGUAGES = {
    "jinja": ("{% if a > 1 %}", "{%- else -%}", "{% endif %}"),
    "liquid": ("{% case a %}", "{% when 'b' %}", "{% endcase %}"),
    "twig": ("{% for a in b|slice(1, 2) %}", "{% else %}", "{% endfor %}"),
    "django": ("{% blocktranslate count a=b %}", "{% plural %}", "{% endblocktranslate %}"),
    "handlebars": ("{{#if a}}", "{{else}}", "{{/if}}"),
    "chained": ("{{~#unless a.b}}", "{{else if c}}", "{{/unless}}"),
    "mustache": ("{{#a}}", "{{/a}}{{^a}}", "{{/a}}"),
    "go": ("{{- if gt .A 1 -}}", "{{ else if .B }}", "{{ end }}"),
    "range": ("{{range .Items}}", "{{else}}", "{{end}}"),
    "erb": ("<% if a > 1 %>", "<% else %>", "<% end %>"),
    "ejs": ("<% if (a) { %>", "<% } else { %>", "<% } %>"),
    "php": ("<?php if ($a > 1): ?>", "<?php else: ?>", "<?php endif; ?>"),
    "svelte": ("{#if a > 1}", "{:else if b}", "{/if}"),
    "smarty": ("{if $a gt 1}", "{else}", "{/if}"),
    "freemarker": ("<#if a??>", "<#else>", "</#if>"),
    "mailchimp": ("*|IF:MEMBER|*", "*|ELSE:|*", "*|END:IF|*"),
}
FORMATS = {
    "html": (lambda text: f"<p>{text}</p>", html_pages.read, ()),
    "markdown": (lambda text: f"{text}\n", markdown_texts.read, ()),
    "json": (lambda text: json.dumps({"a": text}), json_files.read, ("a",)),
    "po": (
        lambda text: f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{text}"\nmsgstr ""\n',
        gettext_files.read,
        (),
    ),
}


def turn(sentence):
    """Translate: all words but the marks of sentences in capitals, the last one first."""
    words = [span for span in find_words(sentence) if sentence[span[0]].isalnum()]
    target, links = "", []
    for start, end in reversed(words):
        target += " " * bool(target)
        links.append((start, end, len(target), len(target) + end - start))
        target += sentence[start:end].upper()
    return target + ("." if sentence.endswith(".") else ""), links


def list_branches(text, tags):
    """Return the words before, between and after tags."""
    parts = re.split("|".join(map(re.escape, tags)), text)
    return [sorted(re.findall(r"\w+", part.upper())) for part in parts]


def translate(source, name):
    if name == "text":
        document = Document.from_text(source)
        return document.replace_sentences([turn(each)[0] for each in document]).text()
    write, read, fields = FORMATS[name]
    documents = UnitDocuments(read(write(source).encode(), f"x.{name}", ReadConfig(fields=fields)), "en")
    rows = [[SentenceTranslation(*turn(each)) for each in document] for document in documents.documents]
    result = documents.file.write(documents.translate(rows).units).decode()
    return json.loads(result)["a"] if name == "json" else result.rpartition("msgstr")[2] if name == "po" else result


@pytest.mark.parametrize("format", ["text", *FORMATS])
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_branch_keeps_its_words(language, format):
    start, middle, end = LANGUAGES[language]
    for source in (
        f"The good {start}old red house{middle}new green lamp{end} stands here.",
        f"Hello {start}dear John{middle}friend{end}, welcome.",
        f"{start}You are late.{middle}You are early.{end} The meeting begins.",
    ):
        tags = [start, *re.split("(?=[{][{]\\^)", middle), end]
        new = translate(source, format)
        outside = [each for each in list_branches(new, tags) if each not in (["P"], [])]
        expected = [each for each in list_branches(source, tags) if each]
        assert [sorted({*each} - {"P"}) for each in outside] == expected, new
        found = [match[0] for match in re.finditer("|".join(map(re.escape, tags)), new)]
        assert found == re.findall("|".join(map(re.escape, tags)), source), new


@pytest.mark.parametrize("format", FORMATS)
def test_a_block_without_alternatives_leaves_the_sentence_whole(format):
    new = translate("The {% if a %}old red{% endif %} house is good.", format)
    assert "GOOD IS HOUSE {% if a %}RED OLD{% endif %} THE." in new
    new = translate("The {% if a %}old{% endif %} and {% if b %}red{% endif %} house.", format)
    assert "HOUSE {% if b %}RED{% endif %} AND {% if a %}OLD{% endif %} THE." in new


def test_a_welcome_after_a_block_begins_without_its_comma():
    assert Document.from_text("Hello {{#if a}}dear{{else}}friend{{/if}}, welcome.").sentences[-1] == "welcome."


def test_tags_that_open_no_block_part_nothing():
    for text in (
        "See {% include 'a' %} and {{ name }} here.",
        "Read {{< ref 'a' >}} and {{else_name}} here.",
        "See <%= a %> and {{> part}} here.",
    ):
        assert Document.from_text(text).sentences == (text,)


def test_blocks_are_matched_from_the_inside():
    text = "{% if a %}{% for b in c %}{% include d %}{% else %}{% endfor %}{% else %}{% endif %}{% endcase %}"
    assert sorted(match_blocks(list(find_template_tags(text)))) == [[0, 5, 6], [1, 3, 4], [7]]


def test_many_tags_take_linear_time():
    tags = list(find_template_tags("{% if a %}{{/b}}" * 20_000))
    assert sum(map(len, match_blocks(tags))) == 40_000
