"""Executes the notebooks of this folder, with what is installed: `python execute.py [--write]`.

A cell that fails fails the run. With `--write` outputs and figures are written into the notebooks.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(path: Path, is_written: bool) -> None:
    """Runs the cells of a notebook, from its folder."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in notebook.cells:
        # When each cell was run.
        cell.metadata.pop("execution", None)
    if is_written:
        nbformat.write(notebook, path)
    print(f"{path.name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells ran")


if __name__ == "__main__":
    for found in sorted(FOLDER.glob("*.ipynb")):
        execute(found, "--write" in sys.argv)
