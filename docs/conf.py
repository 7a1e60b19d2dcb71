"""Sphinx's settings. `make docs` builds the site into out/site; warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `reproduction`
sys.path.insert(0, str(Path(__file__).parent))

from calibeat import __version__

project = "calibeat"
copyright = "The calibeat developers"  # noqa: A001 - Sphinx's name
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "_site.generate",
    "_site.mathml",
    "_site.docstrings",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_site",
    "reproduction/*.md",
    "tutorials/scripts",
    "gallery",
    "**/GALLERY_HEADER.rst",
    "tutorials/pages/index.rst",
]
nitpicky = False

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

default_role = "py:obj"
autodoc_typehints = "none"  # signatures have them already
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_maximum_signature_line_length = 100

sphinx_gallery_conf = {
    "examples_dirs": "tutorials/scripts",
    "gallery_dirs": "tutorials/pages",
    "filename_pattern": r"/run_",  # the others need a service or a cluster: they are shown, and run in the tests
    "download_all_examples": False,
    "ignore_repr_types": r"matplotlib\..*|calibeat\.plot\..*",
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e9,
    "reset_modules": (),
    "write_computation_times": False,
    "show_signature": False,
}

html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_title = "calibeat"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "calibeat"},
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
