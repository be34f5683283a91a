"""One Spark session for all tests of this folder: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from hbuf.spark.session import local_session


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests may run side by side in several processes: all that use the session run in one of them."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "hbuf tests",
        {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")},
        master="local[2]",
    )
    yield session
    session.stop()
