"""Random texts: of what breaks readers, in every mixture."""

PIECES = [
    *("She sees the dog.", "It is cheap!", "a", "Mr. X", "e.g. this", "«Oui ?»", "3.14", "wait...", "。", "？", "-"),
    *(" ", "  ", "\t", "\u00a0", "\u3000", "\u200b", "\u2028", "\x85", "\x0b", "\x0c", "\x1c"),
    *("\x00", "\x01", "\x1b[31m", "\x7f", "\u202e", "\u2066", "\ufeff", "\ufffe", "\ufffd", "\U0010ffff", "\ue000"),
    *("e\u0301", "\u0301" * 5, "👩\u200d👩\u200d👧", "🇩🇪", "ß", "İ", "ﬁ", "א", "ب", "नि", "ไทย", "中文。日本", "𝔘"),
    *("# Title", "* item", "1. one", "> quote", "```", "| a | b |", "[x](y)", "---", "<p>", "&amp;", "<d>", "<mask>"),
    *("<s>", "</s>", "<unk>", "<pad>", "\\", "\\n", '"', "'", "%s", "{}", "$(x)", "a" * 300, "1" * 50, "@@ x", "▁x"),
]
LINE_ENDS = ["\n", "\n", "\n", "\n\n", "\r\n", "\r", "\n \n", "\n\n\n"]


def random_sentence(chance):
    """One to six pieces, or random characters, without line ends."""
    if chance.random() < 0.2:
        return "".join(random_character(chance) for _ in range(chance.randrange(12)))
    return chance.choice(["", " "]).join(chance.choices(PIECES, k=chance.randint(1, 6)))


def random_character(chance):
    """Any character but a line feed and half characters, small numbers more often."""
    while True:
        code = chance.randrange(1 << chance.randint(5, 21))
        if code < 0x110000 and not 0xD800 <= code < 0xE000 and code != 10:
            return chr(code)


def random_text(chance, lines=6):
    """Some lines, with a byte-order mark or without a last line end from time to time; perhaps nothing."""
    text = "".join(random_sentence(chance) + chance.choice(LINE_ENDS) for _ in range(chance.randrange(lines)))
    return chance.choice(["", "", "", "\ufeff"]) + (text if chance.random() < 0.7 else text.rstrip())


def broken(chance, data):
    """The bytes with some that are no UTF-8 among them."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]) + b"x" + data[place:]
