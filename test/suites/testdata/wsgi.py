"""A WSGI application: GET sends a file of the directory www, POST sends back what it got."""
import os


def application(environ, start_response):
    if environ["REQUEST_METHOD"] == "POST":
        left = int(environ["CONTENT_LENGTH"])
        parts = []
        while left:
            part = environ["wsgi.input"].read(min(left, 65536))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(sum(map(len, parts))))])
        return parts
    path = "www" + environ["PATH_INFO"]
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(os.path.getsize(path)))])
    return environ.get("wsgi.file_wrapper", iter_file)(open(path, "rb"), 65536)


def iter_file(f, size):
    with f:
        while part := f.read(size):
            yield part
