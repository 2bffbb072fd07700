"""The words of the synthetic language: plain tables, English beside German.

Topic nouns are things one can carry home, so that every sentence pattern fits every noun. All of them keep one form in
the nominative, accusative and dative singular (no weak masculines), and no English word stands for two German nouns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Gender(StrEnum):
    """The grammatical gender of a German noun."""

    MASCULINE = "masculine"
    FEMININE = "feminine"
    NEUTER = "neuter"


class Case(StrEnum):
    """The grammatical cases the synthetic language uses."""

    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"


_GENDERS = (Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER)


def _table(nominative: str, accusative: str, dative: str) -> dict[tuple[Case, Gender], str]:
    """Reads one row a case, one word a gender (masculine, feminine, neuter)."""
    rows = zip(Case, (nominative, accusative, dative), strict=True)
    return {(case, gender): word for case, row in rows for gender, word in zip(_GENDERS, row.split(), strict=True)}


PRONOUNS = _table("er sie es", "ihn sie es", "ihm ihr ihm")
INDEFINITE_ARTICLES = _table("ein eine ein", "einen eine ein", "einem einer einem")
DEFINITE_ARTICLES = _table("der die das", "den die das", "dem der dem")
# Endings of an adjective after the indefinite (mixed declension) and the definite article (weak declension).
INDEFINITE_ENDINGS = _table("er e es", "en e es", "en en en")
DEFINITE_ENDINGS = _table("e e e", "en e e", "en en en")


@dataclass(frozen=True)
class Noun:
    """A topic noun: its English word, its German word and the gender that decides the pronoun."""

    english: str
    german: str
    gender: Gender


@dataclass(frozen=True)
class Person:
    """Somebody, in English and in the German cases; `possessive` is the English word (his, her)."""

    english: str
    nominative: str
    accusative: str
    dative: str
    possessive: str

    def __str__(self) -> str:
        return self.nominative


@dataclass(frozen=True)
class Word:
    """A word or phrase that looks the same wherever it stands."""

    english: str
    german: str

    def __str__(self) -> str:
        return self.german


@dataclass(frozen=True)
class Room:
    """A room: German says differently where something is (`at`, dative) and where it goes (`to`, accusative)."""

    english: str
    at: str
    to: str


@dataclass(frozen=True)
class Trait:
    """What can be said of a thing. Two traits of one `aspect` are never said of the same thing."""

    english: str
    german: str
    aspect: str
    good: bool
    gradable: bool

    def __str__(self) -> str:
        return self.german


@dataclass(frozen=True)
class Attribute:
    """An adjective before a noun; `stem` takes the German ending."""

    english: str
    stem: str
    aspect: str


def _nouns(gender: Gender, table: str) -> tuple[Noun, ...]:
    pairs = (entry.split() for entry in table.replace("\n", ",").split(",") if entry.strip())
    return tuple(Noun(english, german, gender) for english, german in pairs)


NOUNS: tuple[Noun, ...] = (
    *_nouns(
        Gender.MASCULINE,
        """
        table Tisch, chair Stuhl, armchair Sessel, stool Hocker, carpet Teppich, mirror Spiegel
        suitcase Koffer, backpack Rucksack, basket Korb, bucket Eimer, pot Topf, plate Teller
        spoon Löffel, mug Becher, jug Krug, hammer Hammer, screwdriver Schraubenzieher, broom Besen
        spade Spaten, computer Computer, printer Drucker, television Fernseher, toaster Toaster
        blender Mixer, fan Ventilator, key Schlüssel, ring Ring, scarf Schal, coat Mantel, hat Hut
        sweater Pullover, suit Anzug, skirt Rock, belt Gürtel, helmet Helm, umbrella Regenschirm, ball Ball
        sledge Schlitten, kite Drachen, compass Kompass, globe Globus, calendar Kalender, curtain Vorhang
        candlestick Kerzenständer, hairdryer Föhn, frame Rahmen, desk Schreibtisch, corkscrew Korkenzieher
        calculator Taschenrechner, projector Projektor, loudspeaker Lautsprecher, racket Schläger
        chandelier Kronleuchter, bathrobe Bademantel, monitor Monitor, saddle Sattel
        """,
    ),
    *_nouns(
        Gender.FEMININE,
        """
        lamp Lampe, clock Uhr, vase Vase, cup Tasse, teapot Teekanne, bowl Schüssel, fork Gabel
        pan Pfanne, bottle Flasche, crate Kiste, chest Truhe, box Schachtel, bag Tasche
        handbag Handtasche, briefcase Aktentasche, wallet Brieftasche, jacket Jacke, blouse Bluse
        waistcoat Weste, cap Mütze, necklace Halskette, brooch Brosche, camera Kamera
        typewriter Schreibmaschine, axe Axt, shovel Schaufel, ladder Leiter, wheelbarrow Schubkarre
        brush Bürste, candle Kerze, lantern Laterne, torch Taschenlampe, violin Geige, guitar Gitarre
        flute Flöte, trumpet Trompete, drum Trommel, harp Harfe, trombone Posaune, clarinet Klarinette
        harmonica Mundharmonika, bell Glocke, blanket Decke, tablecloth Tischdecke, bench Bank
        cradle Wiege, hammock Hängematte, doll Puppe, coin Münze, medal Medaille, statue Statue
        mask Maske, crown Krone, flag Fahne, keyboard Tastatur, pump Pumpe
        """,
    ),
    *_nouns(
        Gender.NEUTER,
        """
        book Buch, picture Bild, painting Gemälde, knife Messer, glass Glas, sieve Sieb, board Brett
        tray Tablett, shelf Regal, pillow Kissen, towel Handtuch, shirt Hemd, dress Kleid
        costume Kostüm, bracelet Armband, telephone Telefon, radio Radio, cello Cello
        saxophone Saxofon, accordion Akkordeon, xylophone Xylofon, horn Horn, banjo Banjo
        bicycle Fahrrad, paddle Paddel, tent Zelt, rope Seil, net Netz, tool Werkzeug, notebook Heft
        dictionary Wörterbuch, encyclopedia Lexikon, diary Tagebuch, album Album, game Spiel
        puzzle Puzzle, toy Spielzeug, chessboard Schachbrett, microscope Mikroskop
        telescope Teleskop, thermometer Thermometer, barometer Barometer, microphone Mikrofon
        tripod Stativ, iron Bügeleisen, lighter Feuerzeug, sword Schwert, horseshoe Hufeisen
        aquarium Aquarium, purse Portemonnaie, locket Medaillon, amulet Amulett, skateboard Skateboard
        surfboard Surfbrett, tricycle Dreirad, tambourine Tamburin
        """,
    ),
)


def _named(names: str, possessive: str) -> tuple[Person, ...]:
    return tuple(Person(name, name, name, name, possessive) for name in names.split())


PEOPLE: tuple[Person, ...] = (
    *_named("Anna Maria Julia Laura Sarah Lena Eva Clara Nina Emma", "her"),
    *_named("Peter Paul Thomas Jonas Max Felix Lukas David Simon Tom", "his"),
    Person("my mother", "meine Mutter", "meine Mutter", "meiner Mutter", "her"),
    Person("my sister", "meine Schwester", "meine Schwester", "meiner Schwester", "her"),
    Person("my aunt", "meine Tante", "meine Tante", "meiner Tante", "her"),
    Person("my grandmother", "meine Großmutter", "meine Großmutter", "meiner Großmutter", "her"),
    Person("my father", "mein Vater", "meinen Vater", "meinem Vater", "his"),
    Person("my brother", "mein Bruder", "meinen Bruder", "meinem Bruder", "his"),
    Person("my uncle", "mein Onkel", "meinen Onkel", "meinem Onkel", "his"),
    Person("my grandfather", "mein Großvater", "meinen Großvater", "meinem Großvater", "his"),
)

# Traits suit things one can carry and not the places people go to, so that "it" cannot mean the place.
TRAITS: tuple[Trait, ...] = (
    Trait("heavy", "schwer", "weight", good=False, gradable=True),
    Trait("light", "leicht", "weight", good=True, gradable=True),
    Trait("expensive", "teuer", "price", good=False, gradable=True),
    Trait("cheap", "billig", "price", good=True, gradable=True),
    Trait("valuable", "wertvoll", "price", good=True, gradable=True),
    Trait("worthless", "wertlos", "price", good=False, gradable=False),
    Trait("practical", "praktisch", "use", good=True, gradable=True),
    Trait("impractical", "unpraktisch", "use", good=False, gradable=True),
    Trait("delicate", "empfindlich", "make", good=False, gradable=True),
    Trait("rare", "selten", "kind", good=True, gradable=False),
    Trait("popular", "beliebt", "kind", good=True, gradable=False),
    Trait("brand-new", "nagelneu", "age", good=True, gradable=False),
    Trait("unused", "unbenutzt", "age", good=True, gradable=False),
    Trait("second-hand", "gebraucht", "age", good=False, gradable=False),
)

ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("old", "alt", "age"),
    Attribute("new", "neu", "age"),
    Attribute("small", "klein", "size"),
    Attribute("large", "groß", "size"),
    Attribute("beautiful", "schön", "look"),
    Attribute("strange", "seltsam", "look"),
    Attribute("simple", "schlicht", "look"),
    Attribute("heavy", "schwer", "weight"),
    Attribute("light", "leicht", "weight"),
    Attribute("cheap", "billig", "price"),
    Attribute("expensive", "teur", "price"),
    Attribute("Italian", "italienisch", "origin"),
    Attribute("French", "französisch", "origin"),
)

ROOMS: tuple[Room, ...] = (
    Room("kitchen", "in der Küche", "in die Küche"),
    Room("bedroom", "im Schlafzimmer", "ins Schlafzimmer"),
    Room("living room", "im Wohnzimmer", "ins Wohnzimmer"),
    Room("study", "im Arbeitszimmer", "ins Arbeitszimmer"),
    Room("cellar", "im Keller", "in den Keller"),
    Room("hall", "im Flur", "in den Flur"),
    Room("garage", "in der Garage", "in die Garage"),
    Room("attic", "auf dem Dachboden", "auf den Dachboden"),
)


def _words(table: str) -> tuple[Word, ...]:
    pairs = (line.split(" = ") for line in table.strip().splitlines())
    return tuple(Word(english.strip(), german.strip()) for english, german in pairs)


_OUTDOORS = _words("""
    in the garden = im Garten
    in the park = im Park
    at the lake = am See
    in the forest = im Wald
    on the beach = am Strand
    in town = in der Stadt""")

# One table a slot: the slot {time} of a pattern takes a phrase of WORDS["time"], and so on.
WORDS: dict[str, tuple[Word, ...]] = {
    "outdoors": _OUTDOORS,
    "place": (
        *_OUTDOORS,
        *_words("""
        at the station = am Bahnhof
        at school = in der Schule
        at the office = im Büro
        on the balcony = auf dem Balkon"""),
    ),
    "time": _words("""
        yesterday = gestern
        this morning = heute Morgen
        last week = letzte Woche
        last month = letzten Monat
        two days ago = vor zwei Tagen
        on Friday = am Freitag
        on Saturday = am Samstag"""),
    "moment": _words("""
        in the evening = am Abend
        after lunch = nach dem Mittagessen
        the same day = noch am selben Tag"""),
    "day": _words("""
        Monday = Montag
        Tuesday = Dienstag
        Wednesday = Mittwoch
        Thursday = Donnerstag
        Sunday = Sonntag"""),
    "landmark": _words("""
        the fountain = dem Brunnen
        the tree = dem Baum
        the fence = dem Zaun
        the church = der Kirche
        the wall = der Mauer
        the bridge = der Brücke
        the window = dem Fenster
        the gate = dem Tor
        the monument = dem Denkmal"""),
    "market": _words("""
        at the flea market = auf dem Flohmarkt
        at the market = auf dem Markt
        in a small shop = in einem kleinen Laden
        in an old house = in einem alten Haus"""),
    "country": _words("""
        Italy = Italien
        France = Frankreich
        Spain = Spanien
        Poland = Polen
        Japan = Japan"""),
    "relative": _words("""
        an uncle = einem Onkel
        an aunt = einer Tante
        a friend = einem Freund"""),
    "owner": _words("""
        a king = einem König
        a queen = einer Königin
        an actress = einer Schauspielerin
        a nun = einer Nonne
        a baker = einem Bäcker
        a sailor = einem Seemann"""),
    "memory": _words("""
        old times = alte Zeiten
        the old flat = die alte Wohnung
        the holidays = die Ferien"""),
    "weather": _words("""
        the heat = die Hitze
        the cold = die Kälte
        the rain = der Regen
        the sun = die Sonne"""),
    "degree": _words("""
        very = sehr
        quite = ziemlich
        really = wirklich
        surprisingly = überraschend"""),
    "euros": _words("""
        thirty = dreißig
        fifty = fünfzig
        eighty = achtzig
        two hundred = zweihundert
        five hundred = fünfhundert"""),
    "examined": _words("""
        photographed = fotografiert
        examined = untersucht
        admired = bewundert
        drew = gezeichnet
        hid = versteckt"""),
    "group": _words("""
        children = Kinder
        neighbours = Nachbarn
        guests = Gäste
        tourists = Touristen
        students = Studenten"""),
    "waited": _words("""
        waited = gewartet
        laughed = gelacht
        sang = gesungen
        danced = getanzt"""),
    "feeling": _words("""
        tired = müde
        ill = krank
        hungry = hungrig
        cheerful = fröhlich"""),
    "count": _words("""
        two = zwei
        three = drei
        ten = zehn
        many = viele"""),
    "wares": _words("""
        apples = Äpfel
        flowers = Blumen
        eggs = Eier
        tomatoes = Tomaten
        potatoes = Kartoffeln
        magazines = Zeitschriften"""),
    "vehicles": _words("""
        trains = Züge
        buses = Busse
        trams = Straßenbahnen"""),
}
