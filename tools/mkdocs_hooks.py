"""What mkdocs calls while it builds the site (see mkdocs.yml): it writes the reference from docstrings."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference_pages import PAGES, page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those in docs/."""
    for path, title, space in PAGES:
        files.append(File.generated(config, path, content=page(title, space)))
    return files
