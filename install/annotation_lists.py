"""Which annotations an engine has to hand on, from the vocabulary."""

from oci_specs import vocabulary


def patterns() -> list[str]:
    """For containerd, which matches with Go's path.Match: "*" does not cross "/".

    Others' keys are named one by one, since their prefixes carry much that is no concern of a runtime's. Of
    our own everything passes: a misspelt limit must reach mgpu-runtime to be refused.
    """
    others = {key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION}
    foreign = sorted(name for name in others if not name.startswith(vocabulary.OWN_PREFIX))
    return [f"{vocabulary.OWN_PREFIX}*", *foreign]
