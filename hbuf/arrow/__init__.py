"""Messages as Arrow columns, in and out of buffers. numpy and pyarrow are imported only here and in `hbuf.spark`."""
