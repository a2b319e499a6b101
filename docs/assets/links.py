"""Make the links and formulas of the pages work on the site, and the pages of the API; mkdocs.yml names this hook."""

import logging
import re
import tomllib
from html import escape, unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
# On GitHub, such a link leads to the file. On the site, it leads to GitHub.
OUTSIDE = re.compile(r"(?<=\]\()(?:\.\./)+(?=(\w[\w./-]*))")
# On GitHub, a public name leads to its file. On the site, it leads to its page.
PUBLIC = re.compile(r"(?<=\[`)((?:fastgae\.)?([\w.]+)`\]\()(?:\.\./)+fastgae/[\w/]+\.py(?=\))")
# How docstrings name a page.
NAMED = re.compile(r"docs/([\w-]+\.md)")
DESCRIBED = """---
title: {name}
---

::: {object}
    options:
      heading: {name}
      heading_level: 1
"""
# What stands behind a result without a description.
EMPTY = re.compile(r'–\s*<div class="doc-md-description">\s*</div>')
PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)
# What other sites show of a link to a page.
CARD = """<meta property="og:type" content="website">
<meta property="og:site_name" content="{config.site_name}">
<meta property="og:title" content="{page.title}">
<meta property="og:description" content="{page.meta[description]}">
<meta property="og:url" content="{page.canonical_url}">
<meta property="og:image" content="{config.site_url}assets/card.png">
<meta name="twitter:card" content="summary_large_image">
"""
# What a browser loads with the page from another server.
LOADED = re.compile(
    r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|<link\b(?=[^>]*stylesheet)[^>]*\bhref="(?:https?:)?//'
)

# How much a page counts in the search, by how its path begins: pages that explain come before pages that list.
BOOSTS = {
    "api/fastgae.compat": 0.05,
    "api/types": 0.05,
    "api/": 0.2,
    "conventions": 4,
    "design": 0.1,
    "gallery": 0.1,
    "backends": 2,
    "install": 1.5,
    "performance": 2,
    "reliability": 0.1,
    "which-arguments": 2,
}

log = logging.getLogger(f"mkdocs.hooks.{__name__}")  # below "mkdocs", so that --strict counts its warnings


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the addresses from pyproject.toml, which is the one place that has them."""
    project = tomllib.loads(Path(config.config_file_path).with_name("pyproject.toml").read_text(encoding="utf-8"))
    urls = project["project"]["urls"]
    config.repo_url, config.repo_name, config.site_url = urls["Source"], "GitHub", urls["Documentation"]
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "math", "format": formula}]
    }
    return config


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add a page for each name of the API that the navigation has."""
    for path, name in re.findall(r"(api/[\w/]*(fastgae[\w.]+)\.md)", str(config.nav)):
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, content=DESCRIBED.format(name=name, object=object_of(name))))


def object_of(name: str) -> str:
    """Return where a name is: the function fastgae.data.compute has the path of the module in which it is."""
    module, function = ROOT.joinpath(*name.split(".")).with_suffix(".py"), name.rpartition(".")[2]
    own = module.exists() and f"\ndef {function}(" in module.read_text(encoding="utf-8")
    return f"{name}.{function}" if own else name


def formula(source: str, *_: Any, **__: Any) -> str:
    """Return MathML, which browsers draw without a script; GitHub draws the same block itself."""
    return f'<div class="formula">{convert(source, display="block")}</div>'


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    depth = page.file.src_uri.count("/")
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]  # its cards lead to every page
    boost = next((boost for begin, boost in BOOSTS.items() if page.file.src_uri.startswith(begin)), 1)
    page.meta["search"] = {"boost": boost}

    def absolute(link: re.Match[str]) -> str:
        return link[0] if link[0].count("../") <= depth else f"{config.repo_url}/blob/main/"

    def described(link: re.Match[str]) -> str:
        paths = [each.src_uri for each in files if each.name == f"fastgae.{link[2]}"]
        return link[1] + "../" * depth + paths[0] if paths else link[0]

    return OUTSIDE.sub(absolute, PUBLIC.sub(described, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Describe a page by its first paragraph. In pages of the API, link the pages that docstrings name."""
    first = next((text for text in map(plain, PARAGRAPH.findall(html)) if len(text) > 40), config.site_description)
    page.meta["description"] = escape(first if len(first) <= 160 else f"{first[:157].rpartition(' ')[0]} ...")
    if not page.file.src_uri.startswith("api/"):
        return html

    def linked(named: re.Match[str]) -> str:
        target = files.get_file_from_path(named[1])
        if target is None:
            log.warning("%s: a docstring names %s, which is not there", page.file.src_uri, named[0])
            return named[0]
        return f'<a href="{get_relative_url(target.url, page.url)}">{named[0]}</a>'

    return EMPTY.sub("", NAMED.sub(linked, html))


def plain(html: str) -> str:
    """Return the text of a paragraph in one line."""
    return unescape(" ".join(re.sub("<[^>]+>", "", html).split()))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    found = LOADED.search(output)
    if found:
        log.warning("%s loads something from another server: %s", page.file.src_uri, found[0])
    # The theme asks GitHub for the stars of the repository wherever this attribute is.
    output = output.replace(' data-md-component="source"', "")
    output = output.replace("<title>fastgae - fastgae<", f"<title>fastgae: {config.site_description}<")
    return output.replace("</head>", CARD.format(page=page, config=config) + "</head>", 1)
