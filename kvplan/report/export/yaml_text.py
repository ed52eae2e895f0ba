"""Plain data as YAML that every YAML 1.1 and 1.2 reader takes for the same data."""

from __future__ import annotations


def yaml_text(*documents: object) -> str:
    """The documents, keys in their own order, texts quoted where they could be taken for something else."""
    import yaml

    # No aliases: Compose and kubectl take them, people do not expect them.
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, text)
    return str(
        yaml.dump_all(
            documents,
            Dumper=Plain,
            sort_keys=False,
            allow_unicode=True,
            width=10**6,
            default_flow_style=False,
        )
    )
