"""The manifests against the schemas of Kubernetes itself, strictly: a misspelled field is one that does not exist.

KubeRay's own kinds have no schema here; the pods that they make are checked as pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from specnav.paths import ROOT

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="pip install kubernetes-validate (the extra dev)"
)
OLDEST, NEWEST = "1.28", kubernetes_validate.latest_version()


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that Kubernetes or KubeRay would make, by a name."""
    for file in sorted((ROOT / "docker/kubernetes").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            name = f"{one['kind']} {one['metadata']['name']}"
            if not one["apiVersion"].startswith("ray.io/"):
                yield name, one
                continue
            spec = one["spec"]
            groups = (
                [spec["headGroupSpec"], *spec.get("workerGroupSpecs", ())] if "headGroupSpec" in spec else []
            )
            for group in groups:
                pod = group["template"]
                yield (
                    f"{name}: {group.get('groupName', 'head')}",
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {"name": "pod", **pod["metadata"]},
                        "spec": pod["spec"],
                    },
                )


FOUND = list(documents())


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("document", [one for _, one in FOUND], ids=[name for name, _ in FOUND])
def test_a_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes(
    document: dict[str, Any], version: str
) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelled_field_would_be_found() -> None:
    (_, pod), *_ = [(name, one) for name, one in FOUND if one["kind"] == "Pod"]
    wrong = {**pod, "spec": {**pod["spec"], "securityContexts": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="securityContexts"):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)
