"""The sentences of the phenomena: plain tables, English beside German.

Columns are parted by "="; what differs between the answers stands as [one|two|...]. Slots: {R} and {S} anybody, a
person without a case stands in the nominative; {x} the thing in question with its article; {who} the one who is spoken
to; {verb.did} and the like a form of the verb; and the tables of `lexicon.WORDS`. Two rows of a table say different
things in English, so that only a marked sentence has two translations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from docmt.synthetic.grammar import NounPhrase
from docmt.synthetic.lexicon import DEFINITE_ARTICLES, Case, Gender, Person


class Line(NamedTuple):
    """A sentence in both languages, with slots or filled."""

    source: str
    target: str


def _rows(table: str) -> list[list[str]]:
    lines = (line for line in table.splitlines() if line.strip())
    return [[column.strip() for column in line.split("=")] for line in lines]


def _lines(table: str) -> tuple[Line, ...]:
    return tuple(Line(*row) for row in _rows(table))


# What stands around the two sentences in question. Every English verb is a form of "be", which "did" and "does" never
# stand for; nobody is named or addressed; things stand only in the plural, so that "it" cannot mean them.
FILLERS = _lines("""
    The {vehicles} were late again. = Die {vehicles} hatten wieder Verspätung.
    The {vehicles} were very full {time}. = Die {vehicles} waren {time} sehr voll.
    The shops were already closed. = Die Geschäfte waren schon geschlossen.
    The restaurants were all full {time}. = {time} waren alle Restaurants voll.
    The streets were empty on {day}. = Am {day} waren die Straßen leer.
    The {group} were very {feeling}. = Die {group} waren sehr {feeling}.
    The {group} are on holiday until {day}. = Die {group} sind bis {day} im Urlaub.
    There were many {group} outside {time}. = {time} waren viele {group} draußen.
    On {day} {count} {group} were ill. = Am {day} waren {count} {group} krank.
    The tickets were {degree} expensive. = Die Karten waren {degree} teuer.
    The parks are closed until {day}. = Die Parks sind bis {day} geschlossen.
    The nights are already cold. = Die Nächte sind schon kalt.
    The days are short at the moment. = Die Tage sind im Moment kurz.
    The holidays are almost over. = Die Ferien sind fast vorbei.
""")


# Make a thing the topic.
ACQUISITIONS = _lines("""
    {R} bought {x} {time}. = {R} hat {time} {x.accusative} gekauft.
    {R} ordered {x} on the internet. = {R} hat im Internet {x.accusative} bestellt.
    {R} got {x} as a present on {day}. = {R} hat am {day} {x.accusative} geschenkt bekommen.
    {time} {R} came home with {x}. = {time} ist {R} mit {x.dative} nach Hause gekommen.
    {R} has had {x} since {day}. = Seit {day} hat {R} {x.accusative}.
""")

# Come back to the topic: a masculine, a feminine, a neuter thing.
MENTIONS = _lines("""
    It is {degree} heavy. = [Er|Sie|Es] ist {degree} schwer.
    It was {degree} expensive. = [Er|Sie|Es] war {degree} teuer.
    It comes from {country}. = [Er|Sie|Es] kommt aus {country}.
    It reminds {R} of old times. = [Er|Sie|Es] erinnert {R.accusative} an alte Zeiten.
    {S} likes it a lot. = [Er|Sie|Es] gefällt {S.dative} sehr.
    Nobody knows where it comes from. = Niemand weiß, woher [er|sie|es] kommt.
    Now it has disappeared. = Jetzt ist [er|sie|es] verschwunden.
    {R} photographed it {moment}. = {R} hat [ihn|sie|es] {moment} fotografiert.
    {R} showed it to {S} on {day}. = {R} hat [ihn|sie|es] {S.dative} am {day} gezeigt.
    {R} wants to sell it. = {R} möchte [ihn|sie|es] verkaufen.
    {S} would like to have it too. = {S} hätte [ihn|sie|es] auch gern.
    I have never seen it. = Ich habe [ihn|sie|es] noch nie gesehen.
    Nobody is allowed to touch it. = Niemand darf [ihn|sie|es] anfassen.
    We looked at it for a long time. = Wir haben [ihn|sie|es] lange angesehen.
""")


@dataclass(frozen=True)
class Sense:
    """One meaning of an English word: the German noun, and sentences whose words say that this one is meant."""

    german: str
    oblique: str
    gender: Gender
    fixed_by: tuple[Line, ...]

    def phrase(self, english: str) -> NounPhrase:
        """The noun with the definite article."""
        return _declined(f"the {english}", self.gender, self.german, self.oblique)


def _declined(english: str, gender: Gender, nominative: str, oblique: str) -> NounPhrase:
    """A noun behind the definite article; `oblique` is its form in the accusative and dative."""
    nouns = {Case.NOMINATIVE: nominative, Case.ACCUSATIVE: oblique, Case.DATIVE: oblique}
    return NounPhrase(english, *(f"{DEFINITE_ARTICLES[case, gender]} {noun}" for case, noun in nouns.items()))


def _sense(gender: Gender, german: str, fixed_by: str, oblique: str | None = None) -> Sense:
    return Sense(german, oblique or german, gender, _lines(fixed_by))


_HE, _SHE, _IT = Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER

SENSES: dict[str, tuple[Sense, Sense]] = {
    "bat": (
        _sense(_SHE, "Fledermaus", """
            {R} saw a bat in a dark cave. = {R} hat in einer dunklen Höhle eine Fledermaus gesehen.
            A bat with large wings was asleep in the tower. = Im Turm schlief eine Fledermaus mit großen Flügeln."""),
        _sense(_HE, "Schläger", """
            {R} hit the ball with a bat. = {R} hat den Ball mit einem Schläger getroffen.
            The trainer gave the players a bat. = Der Trainer hat den Spielern einen Schläger gegeben."""),
    ),
    "seal": (
        _sense(_SHE, "Robbe", """
            {R} saw a seal on the ice. = {R} hat auf dem Eis eine Robbe gesehen.
            {R} fed a seal at the zoo. = {R} hat im Zoo eine Robbe gefüttert."""),
        _sense(_IT, "Siegel", """
            {R} saw a seal on an old document. = {R} hat auf einer alten Urkunde ein Siegel gesehen.
            There was a seal of red wax on the bottle. = Auf der Flasche war ein Siegel aus rotem Wachs."""),
    ),
    "crane": (
        _sense(_HE, "Kranich", """
            {R} saw a crane with long legs. = {R} hat einen Kranich mit langen Beinen gesehen.
            A crane was asleep in the reeds. = Im Schilf schlief ein Kranich."""),
        _sense(_HE, "Kran", """
            {R} saw a crane on a building site. = {R} hat auf einer Baustelle einen Kran gesehen.
            A crane lifted the steel beams. = Ein Kran hat die Stahlträger gehoben."""),
    ),
    "spring": (
        _sense(_SHE, "Quelle", """
            {R} drank fresh water from a spring. = {R} hat frisches Wasser aus einer Quelle getrunken.
            The stream comes from a spring. = Der Bach kommt aus einer Quelle."""),
        _sense(_SHE, "Feder", """
            {R} took a spring out of the broken clock. = {R} hat eine Feder aus der kaputten Uhr genommen.
            There was a spring of wire in the mattress. = In der Matratze war eine Feder aus Draht."""),
    ),
    "trunk": (
        _sense(_HE, "Baumstamm", """
            The woodcutter needed a saw for a trunk. = Der Holzfäller brauchte eine Säge für einen Baumstamm.
            {R} saw a trunk with thick branches. = {R} hat einen Baumstamm mit dicken Ästen gesehen."""),
        _sense(_HE, "Koffer", """
            {R} packed the clothes into a trunk. = {R} hat die Kleider in einen Koffer gepackt.
            {R} carried a trunk to the hotel. = {R} hat einen Koffer ins Hotel getragen."""),
    ),
    "pipe": (
        _sense(_SHE, "Pfeife", """
            {R} bought a pipe and tobacco. = {R} hat eine Pfeife und Tabak gekauft.
            The sailor lit a pipe. = Der Matrose hat eine Pfeife angezündet."""),
        _sense(_IT, "Rohr", """
            The plumber repaired a pipe. = Der Klempner hat ein Rohr repariert.
            Water was running out of a pipe. = Aus einem Rohr lief Wasser."""),
    ),
    "bow": (
        _sense(_HE, "Bogen", """
            {R} bought a bow and three arrows. = {R} hat einen Bogen und drei Pfeile gekauft.
            The hunter carried a bow. = Der Jäger trug einen Bogen."""),
        _sense(_SHE, "Schleife", """
            {R} bought a bow of silk. = {R} hat eine Schleife aus Seide gekauft.
            There was a bow on the present. = Auf dem Geschenk war eine Schleife."""),
    ),
    "key": (
        _sense(_HE, "Schlüssel", """
            {R} opened the front door with a key. = {R} hat die Haustür mit einem Schlüssel geöffnet.
            A key was stuck in the lock. = Im Schloss steckte ein Schlüssel."""),
        _sense(_SHE, "Taste", """
            {R} pressed a key on the keyboard. = {R} hat auf der Tastatur eine Taste gedrückt.
            A key of the piano was broken. = Am Klavier war eine Taste kaputt."""),
    ),
    "letter": (
        _sense(_HE, "Brief", """
            The postman brought a letter. = Der Briefträger hat einen Brief gebracht.
            {R} put a letter into an envelope. = {R} hat einen Brief in einen Umschlag gesteckt."""),
        _sense(_HE, "Buchstabe", """
            There was a letter too many in the word. = In dem Wort war ein Buchstabe zu viel.
            {R} learnt a letter of the alphabet. = {R} hat einen Buchstaben des Alphabets gelernt.""",
            oblique="Buchstaben"),
    ),
    "bank": (
        _sense(_SHE, "Bank", """
            {R} opened an account at a bank. = {R} hat bei einer Bank ein Konto eröffnet.
            {R} borrowed money from a bank. = {R} hat sich bei einer Bank Geld geliehen."""),
        _sense(_IT, "Ufer", """
            The river had a steep bank. = Der Fluss hatte ein steiles Ufer.
            The angler slept on a bank. = Der Angler schlief an einem Ufer."""),
    ),
    "plant": (
        _sense(_SHE, "Pflanze", """
            {R} bought a plant with green leaves. = {R} hat eine Pflanze mit grünen Blättern gekauft.
            The gardener watered a plant. = Der Gärtner hat eine Pflanze gegossen."""),
        _sense(_SHE, "Fabrik", """
            {R} visited a plant with many machines. = {R} hat eine Fabrik mit vielen Maschinen besucht.
            The engineer visited a plant. = Der Ingenieur hat eine Fabrik besucht."""),
    ),
    "file": (
        _sense(_SHE, "Feile", """
            {R} took a file out of the toolbox. = {R} hat eine Feile aus dem Werkzeugkasten genommen.
            The locksmith needed a file. = Der Schlosser brauchte eine Feile."""),
        _sense(_SHE, "Akte", """
            The lawyer needed a file. = Der Anwalt brauchte eine Akte.
            {R} put the papers into a file. = {R} hat die Papiere in eine Akte gelegt."""),
    ),
}  # fmt: skip

# Said of a thing of any kind: of an ambiguous word, where they suit both meanings, and of a name.
REMARKS = _lines("""
    {R} photographed {x} {time}. = {R} hat {time} {x.accusative} fotografiert.
    {R} asked about {x}. = {R} hat nach {x.dative} gefragt.
    {R} talked about {x} for a long time. = {R} hat lange über {x.accusative} geredet.
    {R} remembers {x} very well. = {R} erinnert sich sehr gut an {x.accusative}.
    {R} was looking for {x} on {day}. = {R} hat am {day} {x.accusative} gesucht.
    {R} found {x} on {day}. = {R} hat am {day} {x.accusative} gefunden.
    {R} showed {x} to {S}. = {R} hat {S.dative} {x.accusative} gezeigt.
    {R} liked {x} a lot. = {x.nominative} hat {R.dative} sehr gefallen.
    {R} has never seen {x}. = {R} hat {x.accusative} noch nie gesehen.
    {R} was {degree} proud of {x}. = {R} war {degree} stolz auf {x.accusative}.
    {x} reminded {R} of old times. = {x.nominative} hat {R.accusative} an alte Zeiten erinnert.
    {time} {R} drew {x}. = {time} hat {R} {x.accusative} gezeichnet.
""")

FORMAL: tuple[Person, ...] = (
    *(Person(f"Mrs {n}", f"Frau {n}", f"Frau {n}", f"Frau {n}", "her") for n in ("Berger", "Wagner", "Krüger")),
    *(Person(f"Mr {n}", f"Herr {n}", f"Herrn {n}", f"Herrn {n}", "his") for n in ("Schmidt", "Hoffmann", "Vogel")),
)
FAMILIAR: tuple[Person, ...] = (
    Person("my daughter", "meine Tochter", "meine Tochter", "meiner Tochter", "her"),
    Person("my little sister", "meine kleine Schwester", "meine kleine Schwester", "meiner kleinen Schwester", "her"),
    Person("my friend Ida", "meine Freundin Ida", "meine Freundin Ida", "meiner Freundin Ida", "her"),
    Person("my son", "mein Sohn", "meinen Sohn", "meinem Sohn", "his"),
    Person("my little brother", "mein kleiner Bruder", "meinen kleinen Bruder", "meinem kleinen Bruder", "his"),
    Person("my friend Otto", "mein Freund Otto", "meinen Freund Otto", "meinem Freund Otto", "his"),
)

# Say who is being talked to, without talking to them.
ARRIVALS = _lines("""
    {time} {who} came to visit. = {time} kam {who} zu Besuch.
    {who} was already there. = {who} war schon da.
    {who} has just come in. = {who} ist gerade hereingekommen.
    {who} opened the door. = {who} hat die Tür geöffnet.
    I met {who} in the street {time}. = Ich habe {who.accusative} {time} auf der Straße getroffen.
    I visited {who} {time}. = Ich habe {who.accusative} {time} besucht.
    I am on the phone with {who}. = Ich telefoniere mit {who.dative}.
    I am writing a card to {who}. = Ich schreibe {who.dative} eine Karte.
""")

# With "you": formal, informal.
ADDRESSES = _lines("""
    Would you like a cup of tea? = [Möchten Sie|Möchtest du] eine Tasse Tee?
    Are you coming on {day}? = [Kommen Sie|Kommst du] am {day}?
    Do you have time on {day}? = [Haben Sie|Hast du] am {day} Zeit?
    You look {feeling}. = [Sie sehen|Du siehst] {feeling} aus.
    Can you help me on {day}? = [Können Sie|Kannst du] mir am {day} helfen?
    Where were you {time}? = Wo [waren Sie|warst du] {time}?
    Have you bought the {wares}? = [Haben Sie|Hast du] die {wares} gekauft?
    I am sure that you know the way. = Ich bin sicher, dass [Sie den Weg kennen|du den Weg kennst].
    I hope that you have time on {day}. = Ich hoffe, dass [Sie am {day} Zeit haben|du am {day} Zeit hast].
    I will call you on {day}. = Ich rufe [Sie|dich] am {day} an.
    I have bought {count} {wares} for you. = Ich habe für [Sie|dich] {count} {wares} gekauft.
    I will be waiting for you on {day}. = Ich warte am {day} auf [Sie|dich].
    I will bring you {count} {wares}. = Ich bringe [Ihnen|dir] {count} {wares} mit.
    I would like to thank you for the {wares}. = Ich möchte [Ihnen|dir] für die {wares} danken.
""")


@dataclass(frozen=True)
class Verb:
    """A verb without an object that forms its perfect with *haben*, in the forms that the patterns need."""

    did: str
    does: str
    participle: str
    german: str


VERBS: tuple[Verb, ...] = tuple(
    Verb(*row)
    for row in _rows("""
    laughed = laughs = gelacht = lacht
    sang = sings = gesungen = singt
    danced = dances = getanzt = tanzt
    cried = cries = geweint = weint
    whistled = whistles = gepfiffen = pfeift
    worked = works = gearbeitet = arbeitet
    cooked = cooks = gekocht = kocht
    painted = paints = gemalt = malt
    read = reads = gelesen = liest
    smoked = smokes = geraucht = raucht
    prayed = prays = gebetet = betet
    practised = practises = geübt = übt
    """)
)
VERBS_OFFERED = 4  # of which the ellipsis repeats one


@dataclass(frozen=True)
class Tense:
    """Sentences with a verb, and the elliptic ones that can follow them."""

    full: tuple[Line, ...]
    elliptic: tuple[Line, ...]


TENSES: tuple[Tense, ...] = (
    Tense(
        full=_lines("""
            {R} {verb.did} {time}. = {R} hat {time} {verb.participle}.
            {R} {verb.did} all evening. = {R} hat den ganzen Abend {verb.participle}.
            {R} {verb.did} until late at night. = {R} hat bis spät in die Nacht {verb.participle}.
            {time} {R} {verb.did} again. = {time} hat {R} wieder {verb.participle}.
            {R} {verb.did} for a long time on {day}. = {R} hat am {day} lange {verb.participle}.
        """),
        elliptic=_lines("""
            {S} did too. = {S} hat auch {verb.participle}.
            So did {S}. = Auch {S} hat {verb.participle}.
            Then {S} did too. = Dann hat {S} auch {verb.participle}.
            Of course {S} did too. = Natürlich hat auch {S} {verb.participle}.
            In the end {S} did too. = Am Ende hat auch {S} {verb.participle}.
            {S} did not. = {S} hat nicht {verb.participle}.
            Only {S} did not. = Nur {S} hat nicht {verb.participle}.
            I am sure that {S} did too. = Ich bin sicher, dass {S} auch {verb.participle} hat.
        """),
    ),
    Tense(
        full=_lines("""
            {R} often {verb.does}. = {R} {verb.german} oft.
            {R} {verb.does} every day. = {R} {verb.german} jeden Tag.
            {R} {verb.does} in the evening. = {R} {verb.german} am Abend.
            On {day} {R} always {verb.does}. = Am {day} {verb.german} {R} immer.
        """),
        elliptic=_lines("""
            {S} does too. = {S} {verb.german} auch.
            So does {S}. = Auch {S} {verb.german}.
            Of course {S} does too. = Natürlich {verb.german} auch {S}.
            {S} does not. = {S} {verb.german} nicht.
            {S} never does. = {S} {verb.german} nie.
            Only {S} never does. = Nur {S} {verb.german} nie.
            I am sure that {S} does too. = Ich bin sicher, dass {S} auch {verb.german}.
        """),
    ),
)


@dataclass(frozen=True)
class Name:
    """A name that German may translate or keep."""

    translated: NounPhrase
    kept: NounPhrase


def _names(table: str, article: str) -> tuple[Name, ...]:
    """Names of feminine things: ships, newspapers, streets."""
    names = []
    for english, german in _rows(table):
        phrase = f"{article}{english}"
        names.append(Name(_declined(phrase, _SHE, german, german), _declined(phrase, _SHE, english, english)))
    return tuple(names)


def _inns(table: str) -> tuple[Name, ...]:
    """Names of inns: translated they have the gender of their German noun, kept that of *das Gasthaus*."""
    names = []
    for english, nominative, oblique in _rows(table):
        phrase = f"the {english}"
        names.append(Name(_declined(phrase, _HE, nominative, oblique), _declined(phrase, _IT, english, english)))
    return tuple(names)


NAMES: tuple[Name, ...] = (
    *_names("Morning Star = Morgenstern\nSea Wolf = Seewolf\nNorth Wind = Nordwind\nSilver Fox = Silberfuchs", "the "),
    *_names("Evening Post = Abendpost\nSunday Paper = Sonntagszeitung\nWeekly Review = Wochenschau", "the "),
    *_names("King Street = Königstraße\nMill Street = Mühlenstraße\nChurch Street = Kirchstraße", ""),
    *_inns("Blue Heron = Blaue Reiher = Blauen Reiher\nGolden Lion = Goldene Löwe = Goldenen Löwen"),
    *_inns("Red Ox = Rote Ochse = Roten Ochsen\nBlack Bear = Schwarze Bär = Schwarzen Bären"),
)
