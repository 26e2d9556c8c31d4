"""Makes a site of the pages: mkdocs calls these functions while it builds.

The pages are written to be read in the repository, too. So they link to files beside docs/, such
as the examples, which the site has to bring along; and they hide the code that only the tests
run, which the site leaves out.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BESIDE = "project"  # where the site keeps what is not in docs/

_HIDDEN = re.compile(r"^<!-- (?:preamble|check)\n.*?^-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let `folder/*` in the navigation stand for the pages of that folder."""
    config.nav = _listed(config.nav)
    return config


def _listed(entry: Any) -> Any:  # noqa: ANN401 - as YAML has it
    if isinstance(entry, dict):
        return {title: _listed(below) for title, below in entry.items()}
    if isinstance(entry, list):
        return [each for one in entry for each in _each(one)]
    return entry


def _each(entry: Any) -> list[Any]:  # noqa: ANN401 - as YAML has it
    if isinstance(entry, str) and entry.endswith("/*"):
        pages = sorted((DOCS / entry).parent.glob("*.md"))
        return [page.relative_to(DOCS).as_posix() for page in pages if page.name != "README.md"]
    return [_listed(entry)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Bring along the pages and the examples that stand beside docs/."""
    for path in (ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"):
        files.append(_generated(config, path, path.read_text(encoding="utf-8")))
    examples = ROOT / "examples"
    page = examples / "README.md"
    files.append(_generated(config, page, page.read_text(encoding="utf-8")))
    for path in sorted(examples.rglob("*.py")):
        files.append(_generated(config, path, _listing([path]), in_nav=False))
    for path in sorted(examples.iterdir()):
        if path.is_dir() and (sources := sorted(path.glob("*.py"))):
            files.append(_generated(config, path, _listing(sources), in_nav=False))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Leave out what only the tests run, and let links find what was brought along."""
    uri = page.file.src_uri
    home = (ROOT / uri.removeprefix(f"{BESIDE}/") if uri.startswith(BESIDE) else DOCS / uri).parent

    def led(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(home / link["target"]))
        if not path.exists():
            return link[0]  # mkdocs warns about it, and a warning stops the build
        target = os.path.relpath(_uri(path), Path(uri).parent)
        return f"]({Path(target).as_posix()}{link['anchor'] or ''})"

    return _LINK.sub(led, _HIDDEN.sub("", markdown))


def _uri(path: Path) -> str:
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = f"{BESIDE}/{path.relative_to(ROOT).as_posix()}"
    return name if name.endswith(".md") else f"{name}.md"


def _generated(config: MkDocsConfig, path: Path, content: str, *, in_nav: bool = True) -> File:
    file = File.generated(config, _uri(path), content=content)
    file.inclusion = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
    return file


def _listing(paths: list[Path]) -> str:
    parts = [f"# {paths[0].relative_to(ROOT).parent if len(paths) > 1 else paths[0].name}\n"]
    for path in paths:
        title = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        parts.append(f'```python title="{title}"\n{source}```\n')
    return "\n".join(parts)
