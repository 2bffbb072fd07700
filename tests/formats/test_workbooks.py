"""Workbooks: strings of cells in the order of sheets; what formulas and tables refer to stays."""

import io
import random
import zipfile

import openpyxl
import pytest
from generated_files import check_files
from hypothesis import strategies as st
from office_samples import (
    CHART,
    OFFICE,
    A,
    C,
    R,
    S,
    check_mutants,
    check_round_trip,
    list_files,
    pack_parts,
    pseudo,
    read_part,
    relate,
)

from docmt.core.errors import DocmtError
from docmt.formats.units import ReadConfig, Unit
from docmt.formats.workbooks import read

TYPE = OFFICE + "spreadsheetml."
XDR = "http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"


def make(sheets, strings=(), parts=(), settings=""):
    """Return a package. sheets: rows of cells, in the order of their parts and the opposite one of the workbook."""
    count = len(sheets)
    ids = "".join(f'<sheet name="Name {n}" sheetId="{n}" r:id="rId{n}"/>' for n in range(count, 0, -1))
    main = f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets>{ids}</sheets>{settings}</workbook>'
    targets = [("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, count + 1)]
    items = "".join(f"<si>{each}</si>" if each.startswith("<") else f"<si><t>{each}</t></si>" for each in strings)
    members = {
        "xl/workbook.xml": (TYPE + "sheet.main+xml", main),
        "xl/_rels/workbook.xml.rels": relate(*targets, ("sharedStrings", "sharedStrings.xml")),
        "xl/sharedStrings.xml": (TYPE + "sharedStrings+xml", f'<sst xmlns="{S}">{items}</sst>'),
    }
    for number, cells in enumerate(sheets, 1):
        text = f'<worksheet xmlns="{S}"><sheetData><row>{cells}</row></sheetData></worksheet>'
        members[f"xl/worksheets/sheet{number}.xml"] = (TYPE + "worksheet+xml", text)
    return pack_parts({**members, **dict(parts)})


def share(*numbers):
    return "".join(f'<c t="s"><v>{number}</v></c>' for number in numbers)


def read_xlsx(data):
    return read(data, "x.xlsx", ReadConfig())


def read_texts(data):
    check_round_trip(read_xlsx, data)
    return [unit.text for unit in read_xlsx(data).units]


def list_skipped(data):
    return [(each.reason, each.text) for each in read_xlsx(data).skipped]


def test_strings_are_read_in_the_order_of_the_workbook():
    inline = '<c t="inlineStr"><is><t>Inline</t></is></c>'
    data = make([share(0, 1), share(2, 0) + inline], ["One", "Two", "Three", "Unused"])
    assert read_texts(data) == ["Three", "One", "Inline", "Two"]
    file = read_xlsx(data)
    new = file.write([pseudo(unit) for unit in file.units], "fr")
    assert '<t xml:space="preserve">[Ťwó&lt;&amp;"&gt;]</t>' in read_part(new, "xl/sharedStrings.xml")
    assert '<is><t xml:space="preserve">[Inlíné' in read_part(new, "xl/worksheets/sheet2.xml")
    assert 'name="Name 1"' in read_part(new, "xl/workbook.xml")


def test_rich_strings_have_codes_and_lose_changed_readings():
    rich = '<r><t>One </t></r><r><rPr><b/></rPr><t>two</t></r><rPh sb="0" eb="1"><t>reading</t></rPh>'
    data = make([share(0)], [rich])
    (unit,) = read_xlsx(data).units
    assert (unit.text, len(unit.codes)) == ("One two", 4)
    new = read_part(read_xlsx(data).write([Unit("Ein zwei", unit.codes)]), "xl/sharedStrings.xml")
    text = '<t xml:space="preserve">{}</t></r>'
    assert f"<si><r>{text.format('Ein ')}<r><rPr><b/></rPr>{text.format('zwei')}</si>" in new


def test_numbers_and_identifiers_stay():
    data = make([share(0, 1, 2, 3, 4, 5, 6)], ["12", "A_1", "EUR", "x@y.org", "Name", "第1章", "GRAND TOTAL"])
    assert read_texts(data) == ["Name", "第1章", "GRAND TOTAL"]
    assert list_skipped(data) == [("codes and identifiers", text) for text in ("A_1", "EUR", "x@y.org")]


def test_strings_in_their_cells_are_read():
    """As SheetJS writes them."""
    cells = '<c t="str"><v>The house &amp; it</v></c><c t="str"><f>A1</f><v>computed</v></c><c t="str"><v>AB_12</v></c>'
    data = make([cells])
    assert read_texts(data) == ["The house & it"]
    filled = '<c r="{}" t="str">{}<v>The {}</v></c>'
    array = '<f t="array" ref="B9:AA10">SORT(X1:X9)</f>'
    others = [filled.format(place, "", "word") for place in ("AA10", "B10", "AB9")]
    assert read_texts(make([filled.format("B9", array, "first") + "".join(others)])) == ["The word"]
    written = read_part(read_xlsx(data).write([Unit("Das <Haus>")]), "xl/worksheets/sheet1.xml")
    assert '<c t="str"><v>Das &lt;Haus&gt;</v></c>' in written and "<v>computed</v>" in written


def test_formulas_and_what_they_compare_stay():
    formula = '<c t="str"><f>IF(A1="yes","Good ""x""",B1)</f><v>Good</v></c>'
    data = make([formula + share(0, 1, 2)], ["Yes", 'Good "x"', "Other"], settings='<calcPr calcId="1"/>')
    assert read_texts(data) == ["Other"]
    assert list_skipped(data) == [
        ("formulas", 'IF(A1="yes","Good ""x""",B1)'),
        ("values of formulas", "Yes"),
        ("values of formulas", 'Good "x"'),
    ]
    main = read_part(read_xlsx(data).write([Unit("Andere")]), "xl/workbook.xml")
    assert '<calcPr fullCalcOnLoad="1" calcId="1"/>' in main


def test_a_workbook_without_settings_of_calculation_gets_them():
    data = make(["<c><f>A1</f></c>" + share(0)], ["Text"])
    main = read_part(read_xlsx(data).write([Unit("Worte")]), "xl/workbook.xml")
    assert '</sheets><calcPr fullCalcOnLoad="1"/></workbook>' in main


def test_allowed_values_stay():
    cells = f'{share(0, 1)}<dataValidation><formula1>"Open,Closed"</formula1></dataValidation>'
    assert read_texts(make([cells], ["Closed", "Other"])) == ["Other"]


def test_headers_of_tables_stay():
    table = f'<table xmlns="{S}" ref="A1:B2"><tableColumn name="First_x000a_name" totalsRowLabel="Sum of it"/></table>'
    parts = {"xl/tables/table1.xml": (TYPE + "table+xml", table)}
    data = make([share(0, 1, 2)], ["First\nname", "Anna says", "Sum of it"], parts)
    assert read_texts(data) == ["Anna says"]
    assert list_skipped(data) == [("table headers", "First\nname"), ("table headers", "Sum of it")]


def test_headers_and_footers_of_pages():
    settings = (
        '<headerFooter><oddHeader>&amp;L&amp;"Arial,Bold"&amp;12A title&amp;C&amp;D&amp;RYes &amp;&amp; no'
        "</oddHeader><oddFooter>Page &amp;P of &amp;N</oddFooter></headerFooter>"
    )
    sheet = TYPE + "worksheet+xml", f'<worksheet xmlns="{S}"><sheetData/>{settings}</worksheet>'
    data = make([""], parts={"xl/worksheets/sheet1.xml": sheet})
    file = read_xlsx(data)
    assert file.write(file.units) == data
    assert [unit.text for unit in file.units] == ["A title", "Yes & no", "Page of "]
    texts = ["Ein & Titel", "Ja", "Blad av "]
    new = file.write([Unit(text, unit.codes) for text, unit in zip(texts, file.units, strict=True)])
    written = settings.replace("A title", "Ein &amp;&amp; Titel").replace("Yes &amp;&amp; no", "Ja")
    assert written.replace("Page", "Blad").replace("of", "av") in read_part(new, "xl/worksheets/sheet1.xml")


def test_comments_drawings_and_charts():
    paragraph = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    comments = (
        f'<comments xmlns="{S}"><comment><text><r><rPr/><t>A</t></r><r><t>B12</t></r></text></comment></comments>'
    )
    drawing = f'<d:x xmlns:d="{XDR}" xmlns:a="{A}"><d:cNvPr name="n" descr="A box"/>{paragraph.format("Text")}</d:x>'
    parts = {
        "xl/worksheets/_rels/sheet1.xml.rels": relate(("comments", "../comments1.xml"), ("drawing", "../drawing1.xml")),
        "xl/comments1.xml": (TYPE + "comments+xml", comments),
        "xl/drawing1.xml": (OFFICE + "drawing+xml", drawing),
        "xl/_rels/drawing1.xml.rels": relate(("chart", "chart1.xml")),
        "xl/chart1.xml": (CHART, f'<c:x xmlns:c="{C}" xmlns:a="{A}"><c:v>Kept</c:v>{paragraph.format("Chart")}</c:x>'),
    }
    assert read_texts(make([share(0)], ["Cell"], parts)) == ["Cell", "AB12", "A box", "Text", "Chart"]


def test_numbers_of_strings_that_do_not_exist_are_ignored():
    assert read_texts(make([share(7, -1, "x", 0)], ["Text"])) == ["Text"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no package", "not a zip package"),
        (pack_parts({}), "not a workbook"),
        (pack_parts({"xl/vbaProject.bin": ("", "x")}), "macros"),
        (make(["<c>"]), "broken XML"),
    ],
)
def test_what_is_no_workbook_is_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        read_xlsx(data)


CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))
ROWS = st.lists(st.lists(st.text(CHARACTERS, max_size=12).map(lambda text: f"{text} a")), max_size=5)


@check_files(st.lists(ROWS, min_size=1, max_size=3), quick=0)
def test_workbooks_of_another_writer_are_kept(sheets):
    book = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"S{number}")
        for row in rows:
            sheet.append([f"'{text}" if text.startswith("=") else text for text in row])
    buffer = io.BytesIO()
    book.save(buffer)
    check_round_trip(read_xlsx, buffer.getvalue())


@pytest.mark.parametrize("path", list_files(".xlsx", "xlsx"))
def test_real_workbooks_are_kept(path):
    if "protected" in path.name:
        with pytest.raises(DocmtError, match="encrypted"):
            read_xlsx(path.read_bytes())
        return
    check_round_trip(read_xlsx, path.read_bytes())


@pytest.mark.full
def test_mutants_are_read_or_refused():
    rich = "<r><t>One </t></r><r><rPr><b/></rPr><t>two</t></r>"
    data = make([share(0, 1) + "<c><f>A1</f></c>", share(1)], [rich, "Some text"])
    names = ["xl/sharedStrings.xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"]
    assert check_mutants(read_xlsx, data, names, random.Random(0), 600) > 100


def add_to_sheet(data, markup):
    """Return a package whose first sheet has further markup."""
    name = "xl/worksheets/sheet1.xml"
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {each: file.read(each).decode() for each in file.namelist()}
    members[name] = members[name].replace("</sheetData>", f"</sheetData>{markup}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for each, content in members.items():
            file.writestr(each, content)
    return buffer.getvalue()


FILTER = '<autoFilter ref="A1:A3"><filterColumn colId="0">{}</filterColumn></autoFilter>'


def test_criteria_of_filters_follow_the_cells():
    criteria = '<filters><filter val="Open it"/><filter val="Gone"/></filters>'
    criteria += (
        '<customFilters><customFilter val="*open*"/><customFilter operator="equal" val="Open it"/></customFilters>'
    )
    data = add_to_sheet(make(['<c r="A1" t="s"><v>0</v></c>'], ["Open it"]), FILTER.format(criteria))
    check_round_trip(read_xlsx, data)
    file = read_xlsx(data)
    assert [unit.text for unit in file.units] == ["Open it"]
    assert [(each.reason, each.text) for each in file.skipped] == [
        ("criteria of filters", "Gone"),
        ("criteria of filters", "*open*"),
    ]
    sheet = read_part(file.write([Unit("Ouvrez & lisez")]), "xl/worksheets/sheet1.xml")
    assert sheet.count('val="Ouvrez &amp; lisez"') == 2 and 'val="Gone"' in sheet


def test_criteria_of_cells_that_stay_are_not_reported():
    cells = '<c r="A1" t="s"><v>0</v></c><c r="A2"><f>IF(A1="Open","Open","")</f></c>'
    data = add_to_sheet(make([cells], ["Open"]), FILTER.format('<filters><filter val="Open"/></filters>'))
    assert {each.reason for each in read_xlsx(data).skipped} == {"formulas", "values of formulas"}


def test_messages_of_rules_and_tips_of_links():
    rule = (
        '<dataValidations><dataValidation type="whole" sqref="A1" promptTitle="Your age" prompt="Write it" error="{}"/>'
    )
    link = '</dataValidations><hyperlinks><hyperlink ref="A1" display="Open it" tooltip="See it"/></hyperlinks>'
    data = add_to_sheet(make(['<c r="A1" t="s"><v>0</v></c>'], ["Open it"]), rule.format("Too long " * 20) + link)
    check_round_trip(read_xlsx, data)
    file = read_xlsx(data)
    assert [unit.text for unit in file.units] == ["Open it", "Your age", "Write it", "See it"]
    assert [each.reason for each in file.skipped] == ["messages near the limit of Excel"]
    sheet = read_part(file.write([Unit("Lis"), Unit("x" * 33), Unit('"Là"'), Unit("Vois")]), "xl/worksheets/sheet1.xml")
    for each in ('promptTitle="Your age"', 'prompt="&quot;Là&quot;"', 'tooltip="Vois"', 'display="Lis"'):
        assert each in sheet


def test_what_excel_shows_and_stays_is_reported():
    rule = (
        '<conditionalFormatting><cfRule text="Gone"/></conditionalFormatting>'
        '<hyperlinks><hyperlink display="Elsewhere"/></hyperlinks>'
        '<extLst xmlns:x="http://schemas.microsoft.com/office/spreadsheetml/2009/9/main">'
        '<x:dataValidation prompt="Choose it"/></extLst>'
    )
    data = add_to_sheet(make(['<c r="A1" t="s"><v>0</v></c>'], ["Open it"]), rule)
    parts = {
        "xl/worksheets/_rels/sheet1.xml.rels": relate(("vmlDrawing", "../v.vml"), ("oleObject", "../a.bin")),
        "xl/v.vml": ("", "<xml><div><font face='x'>Press<br></font></div><font>Press it</font></xml>"),
        "xl/a.bin": ("x", ""),
        "xl/p.xml": (TYPE + "pivotTable+xml", f'<p xmlns="{S}" rowHeaderCaption="Rows of it" dataCaption="Values"/>'),
    }
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        types = {"xl/workbook.xml": TYPE + "sheet.main+xml", "xl/sharedStrings.xml": TYPE + "sharedStrings+xml"}
        members = {name: (types.get(name, ""), file.read(name).decode()) for name in file.namelist()[1:]}
    file = read_xlsx(pack_parts({**members, **parts}))
    assert [unit.text for unit in file.units] == ["Open it", "Choose it"]
    assert [(each.reason, each.text) for each in file.skipped] == [
        ("labels of buttons", "Press it"),
        ("inserted files", "xl/a.bin"),
        ("criteria of formats", "Gone"),
        ("copies of texts of links", "Elsewhere"),
        ("labels of pivot tables and slicers", "Rows of it"),
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("One_x0009_two", "One\ttwo"),
        ("One_x000D_\ntwo", "One\ntwo"),
        ("One_x005F_x0009_ two", "One_x0009_ two"),
        ("One_x0001_two", "One\x01two"),
        ("Name_x_one _xD83D_", "Name_x_one _xD83D_"),
    ],
)
def test_escapes_are_characters(raw, text):
    for string in (raw, f"<r><t>{raw}</t></r><r><rPr><b/></rPr><t>bold</t></r>"):
        file = read_xlsx(make(['<c t="s"><v>0</v></c>'], [string]))
        assert file.units[0].text.removesuffix("bold") in (text, text.replace("\t", " ").replace("\n", " "))
        new = file.write([Unit(unit.text + "!", unit.codes) for unit in file.units])
        assert read_xlsx(new).units[0].text == file.units[0].text + "!"
