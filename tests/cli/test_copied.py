"""Sentences that are copied stand among those that a model translates, and the others keep their numbers."""

from dataclasses import replace

from docmt.cli.copied import translate_words
from docmt.decoding import TranslatedSentence, Translation
from docmt.documents import Document


class Upper:
    """Translates into capitals, with something wrong in every sentence, and notes what it was given."""

    def translate_all(self, documents):
        self.given = [document.sentences for document in documents]
        return [self.translation(document) for document in documents]

    def translation(self, document):
        target = document.replace_sentences([f"{sentence.upper()}!" for sentence in document.sentences])
        fields = zip(document.sentences, target.sentences, document.spans(), target.spans(), strict=True)
        sentences = tuple(TranslatedSentence(one, other, -1.5, *spans, -0.5) for one, other, *spans in fields)
        count = len(sentences)
        found = Translation(target, sentences, -2.0, ((0, 2),), tuple(range(count)), (count - 1,))
        return replace(found, alternatives=(found,))


def test_copies_stand_in_their_places():
    document = Document.from_sentences(["---", "one", "1984", "two", "", "3.5", "three"], id="x")
    other = Document.from_text("It is 5. 42. Yes.\n12\n")
    translator = Upper()
    found, whole = translate_words(translator, [document, other])
    assert translator.given == [("one", "two", "three"), ("It is 5.", "42.", "Yes.")]
    assert found.document.sentences == ("---", "ONE!", "1984", "TWO!", "", "3.5", "THREE!")
    assert [sentence.score for sentence in found.sentences] == [0.0, -1.5, 0.0, -1.5, 0.0, 0.0, -1.5]
    assert [sentence.rank_score for sentence in found.sentences] == [0.0, -0.5, 0.0, -0.5, 0.0, 0.0, -0.5]
    assert (found.miscounted, found.at_limit, found.overlong) == (((1, 4),), (1, 3, 6), (6,))
    assert (found.document.id, found.score) == ("x", -2.0)
    for sentence in found.sentences:
        assert document.text()[slice(*sentence.source_span)] == sentence.source
        assert found.text()[slice(*sentence.target_span)] == sentence.target
    assert found.alternatives[0].sentences == found.sentences
    assert whole.text() == "IT IS 5.! 42.! YES.!\n12\n"
