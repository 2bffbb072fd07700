"""The OpenAPI description against the routes and their answers."""

import json
import re

import pytest

pytest.importorskip("starlette")

from service_fixtures import running_service

from docmt.serve.native_routes import OPENAPI

pytestmark = pytest.mark.usefixtures("files_here")

DESCRIPTION = json.loads(OPENAPI.read_text(encoding="utf-8"))
SCHEMAS = DESCRIPTION["components"]["schemas"]
TYPES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "null": type(None)}


def check(value, schema, name="answer"):
    """Fail unless a JSON value has the types and keys of a schema, and no others."""
    if "$ref" in schema:
        return check(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], name)
    if "oneOf" in schema:
        kinds = [TYPES[each["type"]] for each in schema["oneOf"]]
        return check(value, schema["oneOf"][[isinstance(value, kind) for kind in kinds].index(True)], name)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "object" in kinds:
        properties = schema.get("properties", {})
        assert set(schema.get("required", [])) <= set(value), name
        assert not properties or set(value) <= set(properties), name
        for key, each in value.items():
            check(each, properties.get(key, schema.get("additionalProperties", {})), f"{name}.{key}")
        return None
    assert not kinds or any(isinstance(value, TYPES[kind]) for kind in kinds), name
    assert "enum" not in schema or value in schema["enum"], name
    for each in value if "array" in kinds else ():
        check(each, schema["items"], name)


def check_answer(answer, method, path):
    """Fail unless an answer is as described."""
    responses = DESCRIPTION["paths"][path][method]["responses"]
    content = responses[str(answer.status_code)]["content"]
    check(answer.json(), content["application/json"]["schema"])


def test_every_route_is_described_and_nothing_else(tmp_path):
    with running_service(tmp_path) as client:
        pages = {"/", "/page/{name}"}
        routes = {(r.path, m.lower()) for r in client.app.routes if r.path not in pages for m in r.methods - {"HEAD"}}
        assert client.get("/openapi.json").json() == DESCRIPTION
    assert routes == {(path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods}


def test_parameters_of_paths_and_references_exist():
    ids = []
    for path, methods in DESCRIPTION["paths"].items():
        for operation in methods.values():
            ids.append(operation["operationId"])
            parameters = operation.get("parameters", [])
            assert {each["name"] for each in parameters if each["in"] == "path"} == set(re.findall(r"{(\w+)}", path))
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', json.dumps(DESCRIPTION)):
        assert reference[1] in DESCRIPTION["components"][reference[0]]


def test_answers_are_as_described(tmp_path):
    with running_service(tmp_path) as client:
        request = {"text": "One cat. Two dogs.", "alternatives": 2, "alignments": True}
        check_answer(client.post("/v1/translate", json=request), "post", "/v1/translate")
        for path in (
            "/v1/models",
            "/v1/languages",
            "/health",
            "/health/ready",
            "/languages",
            "/v2/usage",
            "/frontend/settings",
        ):
            check_answer(client.get(path), "get", path)
        check_answer(client.get("/v2/languages?type=target"), "get", "/v2/languages")
        answer = client.post("/v1/documents", json={"text": "One cat. Two dogs."})
        check_answer(answer, "post", "/v1/documents")
        id = answer.json()["id"]
        client.get(f"/v1/documents/{id}/events")
        for path in ("/v1/documents/{id}", "/v1/documents/{id}/sentences"):
            check_answer(client.get(path.format(id=id)), "get", path)
        sentence = "/v1/documents/{id}/sentences/{number}"
        for path in (f"{sentence}/alternatives", f"{sentence}/alignment"):
            check_answer(client.get(path.format(id=id, number=1)), "get", path)
        edit = client.post(sentence.format(id=id, number=1), json={"target": "Deux chiens."})
        check_answer(edit, "post", sentence)
        path = "/v1/documents/{id}/sentences"
        check_answer(client.post(path.format(id=id), json={"targets": {"0": "Un chat."}}), "post", path)
        check_answer(client.post(sentence.format(id=id, number=0), json={"confirmed": True}), "post", sentence)
        check_answer(client.delete(sentence.format(id=id, number=1)), "delete", sentence)
        path = "/v1/documents/{id}/terms"
        check_answer(client.post(path.format(id=id), json={"source": "cat", "target": "chat"}), "post", path)
        for path in ("/v1/documents/{id}/undo", "/v1/documents/{id}/resume"):
            check_answer(client.post(path.format(id=id)), "post", path)
        check_answer(client.get("/v1/documents"), "get", "/v1/documents")
        values = {"q": ["One cat."], "source": "auto", "target": "fr", "alternatives": 1}
        check_answer(client.post("/translate", json=values), "post", "/translate")
        check_answer(client.post("/detect", json={"q": "the cat"}), "post", "/detect")
        files = {"file": ("a.txt", b"One cat.")}
        check_answer(client.post("/translate_file", files=files, data={"target": "fr"}), "post", "/translate_file")
        values = {"text": ["One cat."], "target_lang": "FR"}
        check_answer(client.post("/v2/translate", json=values), "post", "/v2/translate")
        answer = client.post("/v2/document", files=files, data={"target_lang": "FR"})
        check_answer(answer, "post", "/v2/document")
        path = f"/v2/document/{answer.json()['document_id']}"
        check_answer(client.post(path, json=answer.json()), "post", "/v2/document/{id}")
