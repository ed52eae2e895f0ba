"""Validators of the formats that other tools read.

Compose, GitHub and GitLab: the schemas that check-jsonschema ships. Kubernetes: those of
kubernetes-validate. No package on the index ships SARIF's schema or the Ant schema of JUnit files:
`sarif_errors` and `junit_errors` follow the published rules of the parts that kvplan writes, and refuse
every other part."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest


def answer_errors(schema: dict[str, Any], data: Any) -> list[str]:
    """What a strict reader of an answer's own schema says: 1.0 is no whole number, True is no 1."""
    reader = _reader(json.dumps(schema))
    return [f"{error.json_path}: {error.message[:200]}" for error in reader.iter_errors(data)]


@lru_cache
def _reader(schema: str) -> Any:
    """Checking the schema takes fifty times as long as an answer."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with check-jsonschema")
    draft, read = jsonschema.Draft202012Validator, json.loads(schema)
    draft.check_schema(read)
    whole = draft.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return jsonschema.validators.extend(draft, type_checker=whole)(read)


def builtin_errors(schema: str, path: Path) -> str:
    """What check-jsonschema says of a file; "" where it is valid."""
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def kubernetes_errors(document: Any, version: str) -> str:
    """What kubernetes-validate says of one document under strict schemas; "" where it is valid."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    try:
        validate.validate(document, version, strict=True)
    except validate.ValidationError as error:
        return str(error)
    return ""


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required.split(),
        "additionalProperties": False,
        "properties": properties,
    }


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_TEXT = {"type": "string"}
_MESSAGE = _object("text", text=_TEXT)
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_FROM_ONE = {"type": "integer", "minimum": 1}
_ARTIFACT = _object("uri", uri=_TEXT, uriBaseId=_TEXT)
_REGION = _object("startLine", startLine=_FROM_ONE, startColumn=_FROM_ONE, endColumn=_FROM_ONE)
_PHYSICAL = _object("artifactLocation", artifactLocation=_ARTIFACT, region=_REGION)
_LOGICAL = _object("name", name=_TEXT, fullyQualifiedName=_TEXT)
_LOCATION = _object(
    "physicalLocation", physicalLocation=_PHYSICAL, logicalLocations=_list(_LOGICAL, uniqueItems=True)
)
_RULE = _object(
    "id shortDescription",
    id=_TEXT,
    name=_TEXT,
    shortDescription=_MESSAGE,
    help=_MESSAGE,
    defaultConfiguration=_object("level", level=_LEVEL),
)
_RESULT = _object(
    "message ruleId",
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=_LEVEL,
    message=_MESSAGE,
    locations=_list(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
)
_NOTIFICATION = _object("message", level=_LEVEL, message=_MESSAGE, descriptor=_object("id", id=_TEXT))
_INVOCATION = _object(
    "executionSuccessful",
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    toolExecutionNotifications=_list(_NOTIFICATION, uniqueItems=True),
)
_DRIVER = _object(
    "name", name=_TEXT, version=_TEXT, semanticVersion=_TEXT, rules=_list(_RULE, uniqueItems=True)
)
_RUN = _object(
    "tool",
    tool=_object("driver", driver=_DRIVER),
    invocations=_list(_INVOCATION),
    originalUriBaseIds={"type": "object", "additionalProperties": _object("", description=_MESSAGE)},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    properties={"type": "object"},  # a property bag, which every object may have (section 3.8)
    results=_list(_RESULT),
)
SARIF = _object("version runs", **{"$schema": _TEXT}, version={"const": "2.1.0"}, runs=_list(_RUN))
"""sarif-schema-2.1.0.json (OASIS), of the parts that kvplan writes."""


def sarif_errors(log: Any) -> list[str]:
    """The schema's rules, and those of the text that a schema cannot say."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with check-jsonschema")
    found = [error.message for error in jsonschema.Draft7Validator(SARIF).iter_errors(log)]
    if found:
        return found
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    if len(set(rules)) != len(rules):
        found.append("two rules have one id")
    for result in run["results"]:
        if rules[result["ruleIndex"]] != result["ruleId"]:
            found.append(f"ruleIndex of {result['ruleId']} is another rule's")  # 3.27.6
        for location in result["locations"]:
            physical = location["physicalLocation"]
            found += _uri_errors(physical["artifactLocation"], run["originalUriBaseIds"])
            region = physical.get("region", {})
            if region.get("endColumn", 2**31) <= region.get("startColumn", 1) - 1:
                found.append("a region ends before it begins")  # 3.30.8
    return found


def _uri_errors(artifact: dict[str, str], bases: dict[str, Any]) -> list[str]:
    """RFC 3986 references: ASCII, no blanks or backslashes; absolute ones without a base (3.4.4)."""
    uri, base = artifact["uri"], artifact.get("uriBaseId")
    found = []
    if not uri.isascii() or any(one in uri for one in ' \\"<>^`{|}') or not uri.isprintable():
        found.append(f"{uri!r} is no URI")
    if bool(urlsplit(uri).scheme) == (base is not None):
        found.append(f"{uri!r} against {base}")
    if base is not None and base not in bases:
        found.append(f"{base} is not declared")
    return found


_SUITE = {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"}
_PARTS = ["properties", "testcase", "system-out", "system-err"]


def junit_errors(text: str) -> list[str]:
    """The rules of windyroad/JUnit-Schema JUnit.xsd (Apache Ant)."""
    root = ElementTree.fromstring(text.encode())
    found = []
    if root.tag != "testsuites" or root.attrib:
        found.append("testsuites has no attributes")
    for at, suite in enumerate(root):
        order = [_PARTS.index(part.tag) for part in suite]
        counts = [sum(part.tag == name for part in suite) for name in _PARTS]
        if order != sorted(order) or counts[0] != 1 or counts[2:] != [1, 1]:
            found.append("properties, testcases, system-out, system-err, in this order")
        if suite.tag != "testsuite" or set(suite.attrib) != _SUITE or not suite.attrib["name"].strip():
            found.append("attributes of testsuite")
        cases = suite.findall("testcase")
        kinds = [part.tag for case in cases for part in case]
        counted = {"tests": len(cases), "failures": kinds.count("failure"), "errors": kinds.count("error")}
        if {name: int(suite.attrib[name]) for name in counted} != counted or suite.attrib["id"] != str(at):
            found.append("counts of testsuite")
        for case in cases:
            if set(case.attrib) != {"name", "classname", "time"} or len(case) > 1:
                found.append("attributes of testcase, one result")
            found += [f"{part.tag} of a testcase" for part in case if not _result(part)]
    return found


def _result(part: ElementTree.Element) -> bool:
    return part.tag in ("failure", "error") and set(part.attrib) == {"message", "type"} and len(part) == 0
