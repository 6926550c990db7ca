"""S3 and STS as far as aws_root_test.go needs them, over TLS. Every request is
verified with botocore's own signer and the real keys; each is told in a line of
JSON on the standard output. Nothing of the project is used here.

server.py CERTIFICATES, with REAL_KEYS=ID:SECRET:TOKEN; CERTIFICATES is a folder with
NAME.pem for each name."""

import base64
import datetime
import hashlib
import hmac
import http.server
import json
import os
import socketserver
import ssl
import sys
import threading
import urllib.parse
import zlib

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ID, SECRET, TOKEN = os.environ["REAL_KEYS"].split(":")
EMPTY = hashlib.sha256(b"").hexdigest()


class Refused(Exception):
    pass


def check(ok, why):
    if not ok:
        raise Refused(why)


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Signed:
    """A verified request: its scope, and what chunks are signed with."""

    def __init__(self, handler):
        parts = urllib.parse.urlsplit(handler.path)
        query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        headers = {k.lower(): v for k, v in handler.headers.items()}
        self.presigned = "X-Amz-Signature" in query
        if self.presigned:
            check("authorization" not in headers, "signed twice")
            credential, names, signature = query["X-Amz-Credential"][0], query["X-Amz-SignedHeaders"][0], query["X-Amz-Signature"][0]
            self.stamp, token = query["X-Amz-Date"][0], query.get("X-Amz-Security-Token", [None])[0]
            life = int(query["X-Amz-Expires"][0])
            check(life <= 900, "presigned for longer than a quarter of an hour")
        else:
            auth = headers.get("authorization", "")
            check(auth.startswith("AWS4-HMAC-SHA256 "), "not signed")
            fields = dict(f.strip().split("=", 1) for f in auth.split(" ", 1)[1].split(","))
            credential, names, signature = fields["Credential"], fields["SignedHeaders"], fields["Signature"]
            self.stamp, token, life = headers["x-amz-date"], headers.get("x-amz-security-token"), 900
            check(token is None or "x-amz-security-token" in names.split(";"), "the token is not signed")
        key, day, self.region, self.service, _ = credential.split("/")
        check(key == ID, "access key " + key)
        check(token == TOKEN, "token")
        when = datetime.datetime.strptime(self.stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        age = (datetime.datetime.now(datetime.timezone.utc) - when).total_seconds()
        check(-900 <= age <= life, "signed %d seconds ago" % age)
        check(day == self.stamp[:8], "day")
        for name in headers:
            check(not name.startswith("x-amz-") or name in names.split(";"), "unsigned " + name)

        bare = "&".join(p for p in parts.query.split("&") if not p.startswith("X-Amz-Signature="))
        url = "https://" + headers["host"] + parts.path + ("?" + bare if bare else "")
        request = AWSRequest(method=handler.command, url=url, data=handler.whole)
        for name in names.split(";"):
            for value in handler.headers.get_all(name) or []:
                request.headers.add_header(name, value)
        request.context["timestamp"] = self.stamp
        s3 = self.service == "s3"
        kind = (S3SigV4QueryAuth if s3 else SigV4QueryAuth) if self.presigned else (S3SigV4Auth if s3 else SigV4Auth)
        auth = kind(Credentials(ID, SECRET, TOKEN), self.service, self.region)
        wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        check(wanted == signature, "signature")
        self.last, self.scope = signature, "/".join([day, self.region, self.service, "aws4_request"])
        self.key = mac(mac(mac(mac(("AWS4" + SECRET).encode(), day), self.region), self.service), "aws4_request")
        self.payload = "UNSIGNED-PAYLOAD" if self.presigned and s3 else headers.get("x-amz-content-sha256", "")

    def seal(self, kind, *digests):
        self.last = mac(self.key, "\n".join(["AWS4-HMAC-SHA256-" + kind, self.stamp, self.scope, self.last, *digests])).hex()
        return self.last

    def body(self, raw, headers):
        """The data of a body, after everything that is said of it was verified."""
        if not self.payload.startswith("STREAMING-"):
            if len(self.payload) == 64:
                check(hashlib.sha256(raw).hexdigest() == self.payload, "digest")
            return raw
        signed, trailers, data = "HMAC" in self.payload, self.payload.endswith("-TRAILER"), b""
        while True:
            line, _, raw = raw.partition(b"\r\n")
            size, _, extension = line.decode().partition(";")
            chunk, raw = raw[: int(size, 16)], raw[int(size, 16):]
            if signed:
                check(extension == "chunk-signature=" + self.seal("PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest()), "chunk signature")
            if not chunk:
                break
            check(raw.startswith(b"\r\n"), "end of a chunk")
            data, raw = data + chunk, raw[2:]
        check(len(data) == int(headers["x-amz-decoded-content-length"]), "decoded length")
        if not trailers:
            check(raw == b"\r\n", "end of the body")
            return data
        lines = raw.decode().split("\r\n")
        check(lines[-2:] == ["", ""], "end of the trailers")
        lines = lines[:-2]
        if signed:
            name, _, signature = lines.pop().partition(":")
            text = "".join(l + "\n" for l in lines)
            check(name == "x-amz-trailer-signature" and signature == self.seal("TRAILER", hashlib.sha256(text.encode()).hexdigest()), "trailer signature")
        for line in lines:
            name, _, value = line.partition(":")
            check(name == headers["x-amz-trailer"], "trailer " + name)
            if name == "x-amz-checksum-crc32":
                check(base64.b64decode(value) == zlib.crc32(data).to_bytes(4, "big"), "checksum")
        return data


objects, uploads, lock = {}, {}, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def read(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            whole = b""
            while True:
                line = self.rfile.readline()
                check(line.endswith(b"\r\n"), "broken off")
                size = int(line, 16)
                chunk = self.rfile.read(size)
                check(len(chunk) == size and self.rfile.readline() == b"\r\n", "broken off")
                if size == 0:
                    return whole
                whole += chunk
        size = int(self.headers.get("Content-Length") or 0)
        whole = self.rfile.read(size)
        check(len(whole) == size, "broken off")
        return whole

    def handle_any(self):
        why, service, payload = "", "", ""
        try:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            self.whole = self.read()
            signed = Signed(self)
            service, payload = signed.service, signed.payload
            data = signed.body(self.whole, {k.lower(): v for k, v in self.headers.items()})
        except Exception as e:  # what can't be read is refused
            why = str(e) if isinstance(e, Refused) else repr(e)
            self.close_connection = True
        text = self.requestline + str(self.headers)
        line = json.dumps({
            "method": self.command, "host": self.headers.get("Host", ""), "path": self.path.split("?")[0], "why": why, "service": service, "payload": payload,
            "presigned": "X-Amz-Signature" in self.path, "placeholder": "placeholder" in text.lower(),
        })
        with lock:
            print(line, flush=True)
        if why:
            return self.answer(403, b"<Error><Code>AccessDenied</Code><Message>" + why.encode() + b"</Message></Error>")
        if service == "sts":
            return self.answer(200, b"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/far</Arn>"
                               b"<UserId>U</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>")
        return self.s3(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def s3(self, data):
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        host, key = self.headers["Host"].split(":")[0], urllib.parse.unquote(parts.path)
        if host != "s3.test":
            key = "/" + host[: -len(".s3.test")] + key
        with lock:
            if self.command == "POST" and "uploads" in query:
                uploads["u"] = {}
                return self.answer(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
            if self.command == "PUT" and "partNumber" in query:
                uploads[query["uploadId"]][int(query["partNumber"])] = data
                return self.answer(200, b"", {"ETag": '"part"'})
            if self.command == "POST" and "uploadId" in query:
                objects[key] = b"".join(p for _, p in sorted(uploads.pop(query["uploadId"]).items()))
                return self.answer(200, b"<CompleteMultipartUploadResult><ETag>&quot;whole&quot;</ETag></CompleteMultipartUploadResult>")
            if self.command == "PUT":
                objects[key] = data
                return self.answer(200, b"", {"ETag": '"%s"' % hashlib.md5(data).hexdigest()})
            if self.command == "GET" and "list-type" in query:
                names = "".join("<Contents><Key>%s</Key><Size>%d</Size></Contents>" % (urllib.parse.quote(k.split("/", 2)[2]), len(v)) for k, v in sorted(objects.items()))
                return self.answer(200, ("<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % names).encode())
            if key in objects:
                return self.answer(200, objects[key])
        return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request, address):
        pass


def main():
    contexts = {}
    for file in os.listdir(sys.argv[1]):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(sys.argv[1], file))
        contexts[file[: -len(".pem")]] = context

    def choose(socket, name, _):
        if name in contexts:
            socket.context = contexts[name]

    first = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    first.load_cert_chain(os.path.join(sys.argv[1], "s3.test.pem"))
    first.sni_callback = choose
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = first.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()


main()
