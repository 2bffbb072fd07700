"""The sentence patterns of the synthetic language, English beside German.

Slots: {P} the owner of the topic, {G} the one who gives or tells, {Q} somebody else, {R} and {S} anybody; {a} and
{the} the topic noun with its article; {it} the pronoun, in German only (in English the word stands there); {trait} and
its kinds {gradable}, {good}, {bad}; {room}; and the tables of `lexicon.WORDS`. A person without a case stands in the
nominative.

`settles` names the aspects of the story a pattern decides (where the thing is, how old it is, ...): a later sentence on
the same topic leaves them alone. A pattern that is `last` ends what can be told of the topic.

No pattern with {it} holds another er, sie, es, ihn, ihm or ihr, so that a form found in its translation is the pronoun.
None says "it is a ...": German answers that with "es" for every gender. Between a topic and its pronouns other things
stand only in the plural or behind a preposition, and no place is named right before a pronoun.
"""

from __future__ import annotations

from dataclasses import dataclass

from docmt.synthetic.lexicon import Case


@dataclass(frozen=True)
class Pattern:
    """One sentence in both languages; `case` is that of the pronoun, None where there is none."""

    english: str
    german: str
    case: Case | None = None
    settles: tuple[str, ...] = ()
    last: bool = False

    @property
    def names_place(self) -> bool:
        """Whether the sentence names a place, which an "it" right after it might mean."""
        return any(slot in self.german for slot in ("{place}", "{outdoors}", "{landmark}"))


def _nominative(english: str, german: str, *settles: str, last: bool = False) -> Pattern:
    return Pattern(english, german, Case.NOMINATIVE, settles, last)


def _accusative(english: str, german: str, *settles: str, last: bool = False) -> Pattern:
    return Pattern(english, german, Case.ACCUSATIVE, settles, last)


def _dative(english: str, german: str, *settles: str) -> Pattern:
    return Pattern(english, german, Case.DATIVE, settles)


def _plain(english: str, german: str, *settles: str) -> Pattern:
    return Pattern(english, german, None, settles)


# Sentences that make a thing the topic.
INTRODUCTIONS: tuple[Pattern, ...] = (
    _plain("{P} bought {a} {time}.", "{P} hat {time} {a.accusative} gekauft."),
    _plain("{time} {P} found {a} {market}.", "{time} hat {P} {market} {a.accusative} gefunden."),
    _plain("{P} found {a} in the attic.", "{P} hat auf dem Dachboden {a.accusative} gefunden.", "age"),
    _plain("{P} got {a} for {his} birthday.", "{P} hat zum Geburtstag {a.accusative} bekommen."),
    _plain("{P} inherited {a} from {relative}.", "{P} hat von {relative} {a.accusative} geerbt.", "age"),
    _plain("{P} won {a} in a raffle.", "{P} hat bei einer Tombola {a.accusative} gewonnen."),
    _plain(
        "{P} brought {a} back from {country}.",
        "{P} hat aus {country} {a.accusative} mitgebracht.",
        "origin",
    ),
    _plain("{time} {P} came home with {a}.", "{time} ist {P} mit {a.dative} nach Hause gekommen."),
    _plain(
        "{time} {a} for {P} came in the post.",
        "{time} kam mit der Post {a.nominative} für {P.accusative}.",
    ),
    _plain(
        "{G} gave {P} {a} for Christmas.",
        "{G} hat {P.dative} zu Weihnachten {a.accusative} geschenkt.",
    ),
    _plain("{P} ordered {a} on the internet.", "{P} hat im Internet {a.accusative} bestellt.", "age"),
    _plain("{P} has had {a} since {day}.", "Seit {day} hat {P} {a.accusative}."),
    _plain(
        "{G} says that {P} bought {a} {time}.",
        "{G} sagt, dass {P} {time} {a.accusative} gekauft hat.",
    ),
    _plain("{P} is very proud of {the}.", "{P} ist sehr stolz auf {the.accusative}."),
    _plain("{P} is very pleased with {the}.", "{P} ist mit {the.dative} sehr zufrieden."),
    _plain(
        "{the} in the {room} belongs to {P}.",
        "{the.nominative} {room.at} gehört {P.dative}.",
        "location",
    ),
)

# Sentences that come back to the topic with a pronoun.
MENTIONS: tuple[Pattern, ...] = (
    _nominative("It is {degree} {gradable}.", "{it} ist {degree} {gradable}."),
    _nominative("It looks {degree} {gradable}.", "{it} sieht {degree} {gradable} aus."),
    _nominative("It is worth {euros} euros.", "{it} ist {euros} Euro wert.", "price"),
    _nominative("It comes from {country}.", "{it} kommt aus {country}.", "origin"),
    _nominative("Nobody knows where it comes from.", "Niemand weiß, woher {it} kommt.", "origin"),
    _nominative("It used to belong to {owner}.", "Früher hat {it} {owner} gehört.", "age", "origin"),
    _nominative("It now has a place in the {room}.", "{it} hat jetzt einen Platz {room.at}.", "location"),
    _nominative("{Q} says that it is {degree} {gradable}.", "{Q} sagt, dass {it} {degree} {gradable} ist."),
    _nominative("{Q} believes that it is {trait}.", "{Q} glaubt, dass {it} {trait} ist."),
    _nominative("{Q} wants to know whether it is {trait}.", "{Q} möchte wissen, ob {it} {trait} ist."),
    _nominative("Unfortunately it is {bad}.", "Leider ist {it} {bad}."),
    _nominative("Luckily it is {good}.", "Zum Glück ist {it} {good}."),
    _nominative("{P} is happy because it is {good}.", "{P} ist froh, weil {it} {good} ist."),
    _nominative("Although it is {bad}, {P} is satisfied.", "Obwohl {it} {bad} ist, ist {P} zufrieden."),
    _nominative("Everyone knows how {gradable} it is.", "Alle wissen, wie {gradable} {it} ist."),
    _nominative("Is it really {trait}?", "Ist {it} wirklich {trait}?"),
    _nominative("{Q} likes it a lot.", "{it} gefällt {Q.dative} sehr.", "opinion"),
    _nominative("It reminds {P} of {memory}.", "{it} erinnert {P.accusative} an {memory}."),
    _nominative("Now it has disappeared.", "Jetzt ist {it} verschwunden.", "location", last=True),
    _accusative("{P} {examined} it {moment}.", "{P} hat {it} {moment} {examined}."),
    _accusative("{P} showed it to {Q} {moment}.", "{P} hat {it} {Q.dative} {moment} gezeigt.", "shown"),
    _accusative("Has {P} already shown it to {Q}?", "Hat {P} {it} {Q.dative} schon gezeigt?", "shown"),
    _accusative("{P} keeps looking at it.", "{P} sieht {it} immer wieder an."),
    _accusative("We looked at it for a long time.", "Wir haben {it} lange angesehen.", "narrator"),
    _accusative("I have never seen it.", "Ich habe {it} noch nie gesehen.", "narrator"),
    _accusative("{P} keeps it in the {room}.", "{P} bewahrt {it} {room.at} auf.", "location"),
    _accusative("{P} took it to the {room}.", "{P} hat {it} {room.to} gebracht.", "location"),
    _accusative("{P} wants to sell it.", "{P} möchte {it} verkaufen.", "plan"),
    _accusative("{P} did not want to sell it.", "{P} wollte {it} nicht verkaufen.", "plan"),
    _accusative("{Q} asked whether {P} would sell it.", "{Q} hat gefragt, ob {P} {it} verkauft.", "plan"),
    _accusative("{Q} says that {P} wants to keep it.", "{Q} sagt, dass {P} {it} behalten möchte.", "plan"),
    _accusative("If {P} sells it, {Q} will be sad.", "Wenn {P} {it} verkauft, ist {Q} traurig.", "plan"),
    _accusative("{Q} finds it {degree} {gradable}.", "{Q} findet {it} {degree} {gradable}."),
    _accusative("{Q} would like to have it too.", "{Q} hätte {it} auch gern.", "opinion"),
    _accusative("Nobody is allowed to touch it.", "Niemand darf {it} anfassen."),
    _accusative(
        "{P} had to clean it because {Q} was coming to visit.", "{P} musste {it} reinigen, weil {Q} zu Besuch kam."
    ),
    _accusative("In the end {P} gave it to {Q}.", "Am Ende hat {P} {it} {Q.dative} geschenkt.", "plan", last=True),
    _accusative(
        "{P} has sold it again in the meantime.", "{P} hat {it} inzwischen wieder verkauft.", "plan", last=True
    ),
    _dative("{P} does not quite trust it.", "{P} traut {it} nicht ganz."),
    _dative("{weather} did not harm it.", "{weather} hat {it} nicht geschadet."),
    _dative("{Q} paid little attention to it.", "{Q} hat {it} wenig Beachtung geschenkt.", "opinion"),
    _dative("{P} gave it a place of honour.", "{P} hat {it} einen Ehrenplatz gegeben.", "location"),
)

# Sentences that speak of something else: people, and things only in the plural or behind a preposition.
DISTRACTORS: tuple[Pattern, ...] = (
    _plain("{R} was {place} all day.", "{R} war den ganzen Tag {place}."),
    _plain("The {group} {waited} {outdoors}.", "Die {group} haben {outdoors} {waited}."),
    _plain("There were many {group} {outdoors}.", "{outdoors} waren viele {group}."),
    _plain("{R} bought {count} {wares} {time}.", "{R} hat {time} {count} {wares} gekauft."),
    _plain("{R} called {S} on {day}.", "{R} hat {S.accusative} am {day} angerufen."),
    _plain("{R} and {S} talked for a long time.", "{R} und {S} haben lange geredet."),
    _plain("{R} is very {feeling} today.", "{R} ist heute sehr {feeling}."),
    _plain("{R} had to work a lot {time}.", "{R} musste {time} viel arbeiten."),
    _plain("{time} {R} went for a walk {outdoors}.", "{time} ist {R} {outdoors} spazieren gegangen."),
    _plain("{R} helped {S} {place}.", "{R} hat {S.dative} {place} geholfen."),
    _plain("The {vehicles} were late again.", "Die {vehicles} hatten wieder Verspätung."),
    _plain("{R} says that {S} is coming on {day}.", "{R} sagt, dass {S} am {day} kommt."),
    _plain(
        "{R} waited {place} because the {vehicles} were late.",
        "{R} hat {place} gewartet, weil die {vehicles} Verspätung hatten.",
    ),
    _plain("We cooked together on {day}.", "Wir haben am {day} zusammen gekocht."),
    _plain("I met {R} {place} {time}.", "Ich habe {R.accusative} {time} {place} getroffen."),
    _plain("{R} sat next to {landmark}.", "{R} hat neben {landmark} gesessen."),
    _plain("{R} met {S} in front of {landmark}.", "{R} hat {S.accusative} vor {landmark} getroffen."),
    _plain("The clouds slowly disappeared.", "Die Wolken sind langsam verschwunden."),
    _plain("The shops were already closed.", "Die Geschäfte waren schon geschlossen."),
    _plain("{R} does not have much time at the moment.", "{R} hat im Moment wenig Zeit."),
    _plain("{R} wants to visit {S} on {day}.", "{R} möchte {S.accusative} am {day} besuchen."),
    _plain("{R} fell asleep early on {day}.", "{R} ist am {day} früh eingeschlafen."),
    _plain("If {R} has time, {S} will come too.", "Wenn {R} Zeit hat, kommt auch {S}."),
    _plain("Where was {R} {time}?", "Wo war {R} {time}?"),
    _plain("I hope that {R} will be well again soon.", "Ich hoffe, dass {R} bald wieder gesund ist."),
    _plain("{R} thanked {S} for the {wares}.", "{R} hat {S.dative} für die {wares} gedankt."),
)
