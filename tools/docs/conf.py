"""Sphinx settings; ``python -m tools.docs`` builds the pages into ``out/docs`` and fails on any warning."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from idgraph.errors import VERSION
from tools.docs import generated

generated.write()

project = "idgraph"
author = "The idgraph authors"
copyright = "2026, the idgraph authors"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "myst_parser"]
html_theme = "furo"
html_title = f"idgraph {VERSION}"
version = release = VERSION
html_static_path = ["static", "pictures"]
html_js_files = ["copy.js"]
html_css_files = ["pages.css"]
html_show_sphinx = False
exclude_patterns = ["__pycache__", "static", "examples", "schemas", "pictures"]
default_role = "code"  # docstrings write `name` for code
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autoclass_content = "class"
add_module_names = False
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
nitpicky = False
autodoc_mock_imports: list[str] = []
