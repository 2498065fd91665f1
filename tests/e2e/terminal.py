"""A program on a terminal of its own (a pty): send keys, wait for text."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time


class Terminal:
    def __init__(self, args, env, columns=100):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

        def controlling():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave, env=dict(env, TERM="vt100"), start_new_session=True, preexec_fn=controlling)
        os.close(slave)
        self.output = b""
        self.at = 0  # what expect has consumed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def read_some(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.master, 65536)
        except OSError:  # the other side is gone
            return False
        self.output += part
        return bool(part)

    def send(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def expect(self, pattern, seconds=60):
        """Waits until the regular expression matches output not yet consumed; returns what came before it."""
        end = time.time() + seconds
        while True:
            m = re.search(pattern, self.output[self.at:])
            if m:
                before = self.output[self.at:self.at + m.start()]
                self.at += m.end()
                return before
            if time.time() > end or (not self.read_some(0.2) and self.process.poll() is not None):
                raise AssertionError(f"{pattern!r} did not come; after what was consumed: {self.output[self.at:]!r}")

    def prompt(self, mark=rb">>> ", seconds=60):
        """Waits for the prompt and until the editor reads keys itself: before that Ctrl-D means something to the terminal."""
        before, end = self.expect(mark, seconds), time.time() + seconds
        while termios.tcgetattr(self.master)[3] & termios.ICANON and time.time() < end:
            time.sleep(0.01)
        return before

    def wait(self, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            open_ = self.read_some(0.1)
            if self.process.poll() is not None and not open_:
                break
            if self.process.poll() is not None:
                while self.read_some(0.1) and select.select([self.master], [], [], 0.1)[0]:
                    pass
                break
        return self.process.wait(5)
