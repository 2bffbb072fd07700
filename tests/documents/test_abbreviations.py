"""Full stops that end no sentence: abbreviations, titles, initials, ordinals. And those that do: | is a border."""

from __future__ import annotations

import pytest

from docmt.documents import Document

SENTENCES = {
    "en": """
        We met Ms. Smith and Mx. Jones. | They left.
        The letter is from Amb. Haley, Sgt. Baker and Fr. Brown.
        Br. Thomas came to Ft. Worth with Mt. Everest in mind.
        Rep. Jones, Gov. Brown and Lt. Col. Harris agreed. | So did Gen. Lee.
        The Rt. Hon. Gordon Brown met Messrs. Smith and Weston.
        The max. value is high. | The min. value is low.
        The avg. cost, misc. items and std. error are listed.
        All costs incl. taxes are approx. right. | This is good.
        See the abbr. form, the orig. text and the temp. files.
        The govt. report and the dept. budget were late.
        The recip. value of the coef. is one.
        See Vol. 2 and Vols. 3 to 5. | It is there.
        See Ch. 3, Eq. 5, Tab. 4, App. 2, Para. 7 and Figs. 8 and 9.
        Read Sec. 4.2, Art. 5, No. 7, Nos. 8 and 9, and pp. 3 to 5.
        Under Reg. 5 of Dir. 95 and Ann. 2, see Rec. 12.
        It is in Bk. 4, Pt. 2, Ser. 3, Ep. 11 and Op. 23.
        Vol. II and Art. XII say so, as does App. B.
        The call is on ext. 12, tel. 555 or fax 556.
        He lives in Apt. 4, Bldg. 7, Rm. 12.
        It was founded ca. 1900 and rebuilt c. 1950.
        They come from many countries, e.g. France, Italy etc. | Then they go.
        The others, i.e. Germany and esp. Bavaria, cf. Smith, agreed.
        It is Real Madrid vs. Barcelona tonight.
        He said no. | Parliament agreed.
        She was ill. | Doctors came to help.
        They showed us art. | Visitors liked it.
        We came in May. | 20 people saw us.
        (It is good.) | It is bad.
        It is late. | (It is good. It is new.) | It is bad.
        [It is good.] | It is bad. | He left (see p. 5).
        The report (it is long. Very long.) Smith wrote is here.
        He works at Apple. | iPhone users are happy. | macOS is next.
        Look at the page. | www.example.org is good.
        It returns a number. | free() ends it.
        The U.S. Army and the U.N. Secretary agreed. | We did not.
        He went to the U.S. | He came back.
        It starts at 5 p.m. | We came late.
        J. R. R. Tolkien and J. K. Rowling wrote books. | I read them.
        Yahoo! Inc. and Apple Inc. are firms. | They are big.
        John Smith Jr. and Martin Luther King Jr. spoke.
        He is the author of the song "Yes." and it is good.
        On Jan. 5 and Sept. 9 and in Nov. 2020 they met.
    """,
    "fr": """
        M. Dupont, Mme. Petit et Mlle. Roy sont là. | Me. Duval aussi.
        MM. Blanc et Noir ont vu Mgr. Martin et le Pr. Bernard.
        En 50 av. J.-C. il mourut. | En 40 apr. J.-C. il revint.
        Voir t. 2, vol. 3, chap. 4, fig. 5, art. 6, p. 7 et pp. 8 à 9.
        Voir n. 3, no. 4, al. 5, éd. 6, coll. 7, tabl. 8, annexe 9.
        La temp. max. est de 30 degrés. | La temp. min. est de 3 degrés.
        Il y a env. 30 personnes et approx. 20 chiens.
        Les pays, p. ex. Malte, c.-à-d. Chypre, cf. Dupont, sont là.
        Il habite boul. Voltaire, av. Foch, et tél. 01 23.
        Le dép. de la Sarthe et la rég. de Bretagne ont dit oui.
        Le tome est écrit par J. Dupont et A. Martin.
        Il aime l'art. | Elle aussi.
        Il y a des chats, des chiens, etc. | Le reste suit.
        (C'est bon.) | C'est mauvais.
        Né le 3 janv. 1990, il part en sept. 2020.
        Le St. Laurent et Ste. Anne sont beaux.
        Il part le 5. | Puis il revient.
        Les élèves sont là. | États et villes aussi.
    """,
    "de": """
        Die 1. Bundesliga ist gut. | Er kam.
        Der FC spielt in der 2. Bundesliga und im 3. Stock.
        Sie feiert ihren 18. Geburtstag. | Er seinen 50. Namenstag.
        Das war die 100. Sitzung. | Es war der 150. Jahrestag.
        Beim 1. Mal war es der XX. Parteitag.
        Ich sah ihn am 5. | Er war krank.
        Wir trafen Hr. Müller, Fr. Meier, Dr. Braun und Prof. Schmidt.
        Das ist z. B. Berlin. | Das ist z.B. Hamburg, d. h. Norddeutschland.
        Es sind ca. 30 Leute, bzw. Gäste, inkl. Kinder und evtl. Hunde.
        Siehe Abb. 3, Abs. 2, Art. 5, Bd. 4, Kap. 6, Nr. 7, S. 8, Tab. 9 und Ziff. 10.
        Laut Aufl. 3, Rn. 5, Rz. 6, Anm. 7, Fn. 8, Hg. 9 und Kl. 10 ist es so.
        Vgl. Abschnitt 3, s. Kapitel 4, sog. Experten, ggf. Anhang, einschl. Versand.
        Es kostet 3 Mio. Euro und 4 Mrd. Dollar, zzgl. MwSt. und Porto.
        Er wohnt in der Hauptstr. 5 und am Goethepl. 6.
        Äpfel, Birnen usw. | Dann gehen wir.
        Die max. Höhe ist min. 3 Meter. | Die durchschn. Höhe auch.
        Von J. Schmidt und A. Meier. | Das ist alles.
        Das war Plan B. | Dann kam er.
        Die Fa. Meyer liegt in St. Gallen bei Bad Nr. 5.
        Am 3. Okt. 1990 und im Jan. 1991 war es.
        (Es ist gut.) | Es ist schlecht.
        Das ist der 2. und der 3. Teil.
        Es geschah im 5. Jh. v. Chr. und im 6. Jh. n. Chr.
        Er kommt um 5. | Danach geht er.
    """,
    "es": """
        El Sr. García y la Sra. López vieron a la Srta. Ruiz. | Se fueron.
        El Dr. Pérez, la Dra. Gil, el Prof. Mora y D. Juan llegaron.
        Los Sres. García y Ud. Pedro, como dijo el Excmo. Ministro, vienen.
        Véase el vol. 2, cap. 3, fig. 4, art. 5, núm. 6, pág. 7 y págs. 8 a 9.
        Según la ed. 3, t. 4, tabl. 5, párr. 6, apdo. 7 y n. 8 es así.
        La temp. máx. es de 30 grados. | La temp. mín. es de 3 grados.
        En EE. UU. hay nieve. | En el año 50 a. C. no.
        Los países, p. ej. Malta, están aquí.
        Vive en la avda. Diagonal y en la Pza. Mayor, tel. 555.
        Está en el mar. | Luego vuelve.
        Dijo que no. | Luego vino.
        Es para ti. | No es para mí.
        Hay perros, gatos, etc. | Luego nada.
        (Es bueno.) | Es malo.
        El libro de J. García y A. López.
        Son aprox. 30 personas y unos 5 km. aprox. de aquí.
        Fr. Luis y Sta. Teresa escribieron.
        ¿Es bueno? | Sí. | ¡Es malo! | No.
    """,
    "it": """
        Il Sig. Rossi e la Sig.ra Bianchi sono qui. | Vanno via.
        Il Dott. Verdi, la Dott.ssa Neri, il Prof. Gallo, l'Avv. Conti e l'Ing. Costa vennero.
        L'On. Moro e Mons. Riva videro il Gen. Dalla e S. Pietro.
        Vedi vol. 2, cap. 3, fig. 4, art. 5, n. 6, pag. 7, pp. 8 e 9, tav. 3, sez. 4 e par. 5.
        Vedi artt. 5 e 6, nn. 7 e 8, cfr. Rossi e all. 9.
        La temp. max. è alta. | La temp. min. è bassa.
        Nel 50 a.C. morì. | Nel 50 d.C. tornò.
        È un bar. | Poi vengono tutti.
        Ha detto di no. | Poi è venuto.
        Cani, gatti ecc. | Poi niente.
        (È buono.) | È cattivo.
        Il libro di J. Rossi e A. Bianchi.
        Sono ca. 30 persone, p.es. Mario, tel. 555.
        È in mare. | Domani torna.
        Lavora alla FIAT. | Domani no.
    """,
    "pt": """
        O Sr. Silva e a Sra. Costa viram a Srta. Lima. | Foram embora.
        O Dr. Souza, a Dra. Reis, o Prof. Melo, a Profa. Dias e o Eng. Rocha vieram.
        O Exmo. Ministro e D. Pedro viram o Gen. Braga e Sto. António.
        Ver o vol. 2, cap. 3, fig. 4, art. 5, n. 6, pág. 7, págs. 8 e 9, séc. 20 e inc. 3.
        A temp. máx. é alta. | A temp. mín. é baixa.
        No ano 50 a.C. morreu. | Em 50 d.C. voltou.
        Os países, p. ex. Malta, estão aqui.
        Mora na av. Brasil, tel. 555, aprox. 3 casas.
        Cães, gatos, etc. | Depois nada.
        (É bom.) | É mau.
        O livro de J. Silva e A. Costa.
        Vi a fig. | Depois saí.
    """,
    "nl": """
        Het kost 3 mln. euro en 4 mld. dollar. | En nu.
        Dhr. Jansen en mevr. De Vries zagen dr. Bakker en prof. Smit. | Ze gingen.
        Ir. Visser, Mr. Mulder, Drs. Bos, Ds. Kok en Ing. Vos kwamen.
        Zie vol. 2, hfdst. 3, afb. 4, art. 5, nr. 6, p. 7, pp. 8 en 9, blz. 10, bijl. 3 en par. 4.
        De max. waarde is hoog. | De min. waarde is laag.
        Steden, bijv. Amsterdam, o.a. Utrecht, d.w.z. Nederland, m.n. Holland.
        Er zijn ca. 30 mensen, incl. kinderen, excl. Jan en evt. Piet.
        Honden, katten enz. | Dan niets.
        (Het is goed.) | Het is slecht.
        Het boek van J. Jansen en A. Bakker.
        Hij zei van niet. | Jan zei van wel.
        Ik ben het best. | Jan is er ook.
        Het was laat. | 's Avonds kwam hij.
        In de 3e eeuw v. Chr. en in de 2e eeuw n. Chr.
    """,
}
ROWS = [(language, row.strip()) for language, rows in SENTENCES.items() for row in rows.strip().splitlines()]


@pytest.mark.parametrize(("language", "row"), ROWS)
def test_full_stops(language: str, row: str) -> None:
    sentences = row.split(" | ")
    assert list(Document.from_text(" ".join(sentences), language=language).sentences) == sentences
