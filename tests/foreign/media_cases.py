"""FFmpeg's libraries, as PyAV on PyPI has them: what `ffmpeg -init_hw_device cuda` does, and what follows.

Prints one JSON document. Decoding and encoding need libraries of NVIDIA's that containers do not have.
"""

import gc
import io
import json
from collections.abc import Callable

import av
import pynvml
from av.codec.hwaccel import HWAccel, hwdevices_available

SIZE = 256


def used_mib() -> int:
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(card).used) >> 20


def on_the_card() -> HWAccel:
    return HWAccel("cuda", allow_software_fallback=False)


def encoded(codec: str) -> io.BytesIO:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as movie:
        stream = movie.add_stream(codec, rate=25)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for _ in range(3):
            movie.mux(stream.encode(av.VideoFrame(SIZE, SIZE, "yuv420p")))
        movie.mux(stream.encode())
    out.seek(0)
    return out


def decoded(movie: io.BytesIO) -> None:
    with av.open(movie, hwaccel=on_the_card()) as opened:
        list(opened.decode(video=0))


def missing(work: Callable[[], object]) -> list[str]:
    """What could not be loaded, when it fails."""
    with av.logging.Capture() as said:
        try:
            work()
        except av.FFmpegError:
            return [message.strip() for _, _, message in said if message.startswith("Cannot")]
    return ["nothing"]


def main() -> None:
    pynvml.nvmlInit()
    av.logging.set_level(av.logging.ERROR)
    seen: dict[str, object] = {"known": "cuda" in hwdevices_available(), "before_mib": used_mib()}
    device = on_the_card().create(av.Codec("h264", "r"))
    seen["with_mib"] = used_mib()
    movie = encoded("libx264")
    seen["decoding"] = missing(lambda: decoded(movie))
    seen["encoding"] = missing(lambda: encoded("h264_nvenc"))
    del device
    gc.collect()
    seen["after_mib"] = used_mib()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
