"""A caller for readfish whose raw data are letters already."""

from readfish.plugins.abc import CallerABC
from readfish.plugins.utils import Result


class Caller(CallerABC):
    def __init__(self, debug_log=None, **kwargs):
        pass

    def validate(self):
        pass

    def describe(self):
        return "letters"

    def disconnect(self):
        pass

    def basecall(self, chunks, signal_dtype, daq_values):
        for channel, (read_id, letters, barcode) in chunks:
            yield Result(channel=channel, read_id=read_id, seq=letters, barcode=barcode)
