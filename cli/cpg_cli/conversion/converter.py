"""Convert documents one by one; each format says what is its own."""

from collections.abc import Iterable, Iterator

from cpg_cli.conversion import coscheduling, native, volcano
from cpg_cli.conversion.documents import ManifestDocument, Plain
from cpg_cli.conversion.formats import ConversionOptions, ManifestFormat, convert_pods, foreign_keys_in
from cpg_cli.conversion.pods import copy_of

FORMATS = {found.name: found for found in (volcano.FORMAT, coscheduling.FORMAT, native.FORMAT)}


def convert_all(
    documents: Iterable[ManifestDocument], formats: Iterable[ManifestFormat], options: ConversionOptions
) -> tuple[list[ManifestDocument], list[str]]:
    """Return the converted documents, and a sentence for each thing that has no equivalent."""
    notes: dict[str, None] = {}
    found = [new for document in documents if (new := _converted(document, tuple(formats), options, notes)) is not None]
    return found, list(notes)


def _converted(
    document: ManifestDocument, formats: tuple[ManifestFormat, ...], options: ConversionOptions, notes: dict[str, None]
) -> ManifestDocument | None:
    """Return a document as ours; as it is if it concerns none of the formats; None if it has no equivalent."""
    where = _where(document.plain)
    plain: Plain | None = copy_of(document.plain)
    changed = False
    for rules in formats:
        if plain is not None and rules.owns(plain):
            plain = rules.convert(plain, options, lambda text: notes.setdefault(f"{where}: {text}"))
            changed = True
        if plain is None:
            return None
        changed |= convert_pods(plain, rules, options)
        for key in dict.fromkeys(_left_keys(plain, rules)):
            notes.setdefault(f"{where}: {key} means nothing here")
    return ManifestDocument(plain) if changed and plain is not None else document


def _left_keys(plain: Plain, rules: ManifestFormat) -> Iterator[str]:
    return foreign_keys_in(plain, rules.foreign_keys) if rules.foreign_keys else iter(())


def _where(plain: Plain) -> str:
    metadata = plain.get("metadata") or {}
    return f"{plain.get('kind')} {metadata.get('name') or metadata.get('generateName') or '(no name)'}"
