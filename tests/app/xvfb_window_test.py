#!/usr/bin/python3
"""The window on a display: it starts under Xvfb, takes clicks and keys as a user makes them, and ends cleanly when it is closed.

What the other tests of the window draw without a display goes through EGL; this is the way through GLFW (surface_glfw.cpp).
Usage: xvfb_window_test.py GRADLOOM MODELS_FOLDER. Exit code 77, with the reason: Xvfb or the XTest extension is not here.
"""
import ctypes
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

WIDTH, HEIGHT = 1280, 720
SKIP = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


class Image(ctypes.Structure):  # the first members of XImage (X11/Xlib.h)
    _fields_ = [(name, ctypes.c_int) for name in ("width", "height", "xoffset", "format")] + [
        ("data", ctypes.POINTER(ctypes.c_char)),
        *[(name, ctypes.c_int) for name in ("byte_order", "bitmap_unit", "bitmap_bit_order", "bitmap_pad", "depth", "bytes_per_line", "bits_per_pixel")],
    ]


class TextProperty(ctypes.Structure):  # XTextProperty (X11/Xutil.h)
    _fields_ = [("value", ctypes.c_char_p), ("encoding", ctypes.c_ulong), ("format", ctypes.c_int), ("items", ctypes.c_ulong)]


class Display:
    """A connection to the X server, with XTest."""

    def __init__(self, name):
        try:
            self.x = ctypes.CDLL("libX11.so.6")
            self.test = ctypes.CDLL("libXtst.so.6")
        except OSError as error:
            skip(str(error))
        for function in ("XOpenDisplay", "XGetImage"):
            getattr(self.x, function).restype = ctypes.c_void_p
        for function in ("XDefaultRootWindow", "XInternAtom", "XStringToKeysym"):
            getattr(self.x, function).restype = ctypes.c_ulong
        self.name = name
        self.display = ctypes.c_void_p(self.x.XOpenDisplay(name.encode()))
        self.opened = bool(self.display)
        if self.opened:
            self.root = ctypes.c_ulong(self.x.XDefaultRootWindow(self.display))

    def window(self, title):
        """The child of the root that has such a title; none: 0."""
        root, parent, children, count = ctypes.c_ulong(), ctypes.c_ulong(), ctypes.POINTER(ctypes.c_ulong)(), ctypes.c_uint()
        self.x.XQueryTree(self.display, self.root, ctypes.byref(root), ctypes.byref(parent), ctypes.byref(children), ctypes.byref(count))
        for i in range(count.value):
            name = TextProperty()
            self.x.XGetWMName(self.display, ctypes.c_ulong(children[i]), ctypes.byref(name))
            if name.value and title.encode() in name.value:  # in whatever encoding: the title itself is ASCII
                return children[i]
        return 0

    def picture(self):
        """The screen as rows of RGB bytes."""
        at = self.x.XGetImage(self.display, self.root, 0, 0, WIDTH, HEIGHT, ctypes.c_ulong(0xFFFFFFFF), 2)
        assert at, "the screen cannot be read"
        image = ctypes.cast(at, ctypes.POINTER(Image)).contents
        assert image.bits_per_pixel == 32, image.bits_per_pixel
        raw = ctypes.string_at(image.data, image.bytes_per_line * HEIGHT)
        self.x.XDestroyImage(ctypes.c_void_p(at))
        rgb = bytearray(WIDTH * HEIGHT * 3)
        for to, of in ((0, 2), (1, 1), (2, 0)):
            rgb[to::3] = raw[of::4]
        return bytes(rgb)

    def flush(self):
        self.x.XSync(self.display, 0)

    def click(self, x, y):
        self.test.XTestFakeMotionEvent(self.display, -1, x, y, ctypes.c_ulong(0))
        self.flush()
        time.sleep(0.3)
        for down in (1, 0):
            self.test.XTestFakeButtonEvent(self.display, 1, down, ctypes.c_ulong(0))
            self.flush()
            time.sleep(0.1)

    def key(self, name, *held):
        codes = [self.x.XKeysymToKeycode(self.display, ctypes.c_ulong(self.x.XStringToKeysym(k.encode()))) & 0xFF for k in (*held, name)]
        assert all(codes), (name, held)
        for down, order in ((1, codes), (0, codes[::-1])):
            for code in order:
                self.test.XTestFakeKeyEvent(self.display, code, down, ctypes.c_ulong(0))
        self.flush()
        time.sleep(0.15)

    def close(self, window):
        """As the button of a window manager does."""
        atoms = [ctypes.c_ulong(self.x.XInternAtom(self.display, name, 0)) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW")]
        event = bytearray(192)
        struct.pack_into("<i4xQi4xQQQi4x5q", event, 0, 33, 0, 1, self.display.value, window, atoms[0].value, 32, atoms[1].value, 0, 0, 0, 0)
        self.x.XSendEvent(self.display, ctypes.c_ulong(window), 0, ctypes.c_long(0), (ctypes.c_char * 192).from_buffer(event))
        self.flush()


def write_png(path, rgb):
    rows = b"".join(b"\0" + rgb[y * WIDTH * 3:(y + 1) * WIDTH * 3] for y in range(HEIGHT))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def differing(a, b, box):
    """The part of the pixels of (left, top, right, bottom) that differ."""
    left, top, right, bottom = box
    differ = 0
    for y in range(top, bottom):
        row = (y * WIDTH + left) * 3
        of, other = a[row:row + (right - left) * 3], b[row:row + (right - left) * 3]
        differ += sum(of[i:i + 3] != other[i:i + 3] for i in range(0, len(of), 3)) if of != other else 0
    return differ / ((right - left) * (bottom - top))


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


def start_server():
    """An X server of its own and a connection to it; another one takes the next number where the first is in use after all."""
    if shutil.which("Xvfb") is None:
        skip("there is no Xvfb")
    for number in range(90, 100):
        server = subprocess.Popen(["Xvfb", f":{number}", "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-nolisten", "tcp", "-noreset"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while server.poll() is None and time.monotonic() < end:
            display = Display(f":{number}")
            if display.opened:
                return server, display
            time.sleep(0.2)
        if server.poll() is None:
            server.terminate()
        server.wait()
    skip("Xvfb does not start here")


def settings_of(folder):
    path = folder / "settings.json"
    return json.loads(path.read_text()) if path.exists() else {}


def drive(display, program, folder, keep):
    window = wait_for("the window", lambda: display.window("Gradloom"))
    wait_for("its title names the model", lambda: display.window("mlp"))
    empty = bytes(WIDTH * HEIGHT * 3)
    wait_for("something is drawn", lambda: differing(display.picture(), empty, (0, 0, WIDTH, HEIGHT)) > 0.5)

    def settled():
        before = display.picture()
        time.sleep(1)
        return before if display.picture() == before else None

    drawn = wait_for("the picture stands still", settled)
    colors = {drawn[i:i + 3] for i in range(0, len(drawn), 3 * 97)}
    assert len(colors) > 20, f"only {len(colors)} colours: nothing is drawn"
    write_png(folder / "xvfb_window.png", drawn)

    menu = (4, 40, 200, 240)  # where the first menu opens
    display.click(24, 16)
    wait_for("a click opens the menu", lambda: differing(display.picture(), drawn, menu) > 0.1)
    display.key("Escape")
    wait_for("Escape closes it", lambda: differing(display.picture(), drawn, menu) < 0.05)

    middle = (WIDTH // 2 - 150, 120, WIDTH // 2 + 150, 260)
    display.key("p", "Control_L", "Shift_L")
    wait_for("Ctrl+Shift+P opens the palette", lambda: differing(display.picture(), drawn, middle) > 0.1)
    for letter in "light":
        display.key(letter)
    time.sleep(1)
    display.key("Return")
    wait_for("the light theme is drawn", lambda: differing(display.picture(), drawn, (0, 0, WIDTH, HEIGHT)) > 0.5)

    display.close(window)
    code = program.wait(timeout=30)
    assert code == 0, f"ended with {code}"
    theme = settings_of(keep).get("theme")
    assert theme == "light", f"the theme is {theme}: what was typed did not arrive"


def main():
    gradloom, models = sys.argv[1], pathlib.Path(sys.argv[2])
    server, display = start_server()
    program = None
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            keep = folder / "kept"
            keep.mkdir()
            pictures = pathlib.Path(gradloom).parent
            environment = dict(os.environ, DISPLAY=display.name, HOME=temporary, LIBGL_ALWAYS_SOFTWARE="1", LC_ALL="C.UTF-8")
            environment.pop("WAYLAND_DISPLAY", None)
            said = open(folder / "stderr", "w+")
            program = subprocess.Popen(
                [gradloom, "open", str(models / "mlp" / "model.onnx"), "--loss", "loss", "--dim", "batch=8", "--size", f"{WIDTH}x{HEIGHT}",
                 "--theme", "dark", "--scale", "1", "--keep", str(keep), "--session", str(folder / "s.db")],
                env=environment, stdout=subprocess.DEVNULL, stderr=said)
            try:
                drive(display, program, pictures, keep)
            except AssertionError as error:
                said.seek(0)
                print(f"{error}; it said: {said.read() or 'nothing'}")
                return 1
    finally:
        for process in (program, server):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
    print("window: clicks and keys arrive, it ends with 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
