"""What a driver does when it is killed, and does again afterwards: a query, and a write.

As a program: the name of the function and its arguments as JSON.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

import ursula.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000


def follow(spark: "SparkSession", endpoint: str, bucket: str, checkpoint: str, partitions: int) -> None:
    """Copy one bucket into another, until there is no more."""
    rows = (
        spark.readStream.format("ursula")
        .options(endpoint=endpoint, bucket=bucket, startingOffsets="earliest", maxMessagesPerTrigger=300)
        .load()
        .select("stream", "value")
    )
    query = (
        rows.repartition(partitions)
        .writeStream.format("ursula")
        .options(endpoint=endpoint, bucket=f"{bucket}-out", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write(
    spark: "SparkSession", endpoint: str, bucket: str, version: int, partitions: int, by: str, size: int
) -> None:
    """Write numbers to ten streams, in rows of `size` bytes; `by` sorts the rows of each partition."""
    rows = spark.range(0, ROWS, 1, partitions).selectExpr(
        "concat('s', id % 10) AS stream", f"rpad(concat(id, ';'), {size}, ' ') AS value", "id"
    )
    sorted_rows = rows.repartition(partitions, "id").sortWithinPartitions(by).select("stream", "value")
    transaction = {"txnAppId": "nightly", "txnVersion": str(version)}
    target = sorted_rows.write.format("ursula").options(endpoint=endpoint, bucket=bucket, **transaction)
    target.mode("append").save()


if __name__ == "__main__":
    work: Any = {"follow": follow, "write": write}[sys.argv[1]]
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    work(ursula.spark.session("local[2]", settings), **json.loads(sys.argv[2]))
