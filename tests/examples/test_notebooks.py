"""The example notebooks run from top to bottom, and show what they are about."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

nbclient: Any = pytest.importorskip("nbclient", reason="needs nbclient: the extra test")
pytest.importorskip("ipykernel", reason="needs ipykernel: the extra test")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    # the kernel of this very Python, wherever other ones are registered
    folder = tmp_path / "jupyter_data_dir" / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (folder / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "Python 3", "language": "python"}}')
    notebook = nbformat.read(file, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "store it without outputs"
    nbclient.NotebookClient(notebook, timeout=250, kernel_name="python3", resources={}).execute()
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    assert not [one for one in outputs if one.output_type == "error"]
    shown = [one.data["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    assert len(shown) >= 3 and any("data:image/svg+xml" in html for html in shown)


def test_there_are_notebooks() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["first_stencil", "pruned_layer"]
