"""Each task of the gallery, compiled as it stands: it passes its gate. `make bench-gallery` measures the same."""

import pytest

from tests.bench import gallery

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("name", gallery.NAMES)
def test_a_task_of_the_gallery_passes_its_gate(deployment, name):
    row = gallery.compile_task(deployment, name, "nightly")
    assert row["status"] == "succeeded", row
