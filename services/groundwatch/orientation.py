"""Which way up an image is: as people see it on the page, so that boxes lie where they look."""

import io

from PIL import Image, ImageOps

from groundwatch.image_files import READERS

ORIENTATION = 0x0112
"""The tag of EXIF that says how an image is turned; 1: it is upright."""

_UNTURNED = ("WEBP", "GIF")
_NO_EXIF = ("xmp", "XML:com.adobe.xmp", "Raw profile type exif")


def upright(image: Image.Image) -> Image.Image:
    """The image as browsers show it, turned as the EXIF data of a JPEG or PNG say.

    Pillow would also obey those of WebP, XMP and text chunks of PNG. Chromium does not, and boxes would lie
    elsewhere than in the image that people look at.
    """
    image.load()
    for name in _NO_EXIF:
        image.info.pop(name, None)
    return image if image.format in _UNTURNED else ImageOps.exif_transpose(image)


def upright_file(data: bytes) -> bytes:
    """The file for those who do not look at EXIF data: written anew, upright, where it is not already.

    What cannot be read stays as it is.
    """
    if b"Exif\0\0" not in data and b"eXIf" not in data:
        return data
    try:
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            turned = upright(opened)
            if opened.format in _UNTURNED or opened.getexif().get(ORIENTATION, 1) == 1:
                return data
            out = io.BytesIO()
            kept = {name: opened.info[name] for name in ("icc_profile",) if name in opened.info}
            turned.save(out, "PNG" if opened.format == "PNG" else "JPEG", quality=95, **kept)
    except Exception:
        # Pillow's decoders raise whatever their format's parser raised.
        return data
    return out.getvalue()
