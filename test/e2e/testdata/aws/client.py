"""What a program of a stage does with AWS: boto3, the aws command line, curl, and
chunks that are signed by hand. It prints a line for each deed."""

import base64
import datetime
import hashlib
import hmac
import io
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import zlib

import boto3
import botocore.auth
import botocore.exceptions
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

PORT = sys.argv[1]
S3, BUCKET, STS = "https://s3.test:" + PORT, "https://bucket.s3.test:" + PORT, "https://sts.test:" + PORT
ODD = "a b+c/\u00e4\u20ac/%25 'x'(y)!*&z=1~"


def tell(name, text):
    print(name + ": " + str(text), flush=True)


def client(style="path", **more):
    config = Config(s3={"addressing_style": style}, signature_version="s3v4", retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=S3, config=config, **more)


def boto():
    s3 = client()
    data = os.urandom(200_000)
    s3.put_object(Bucket="bucket", Key="whole", Body=data)
    tell("put and get", s3.get_object(Bucket="bucket", Key="whole")["Body"].read() == data)

    class Pipe(io.RawIOBase):
        """A body that can't be read twice."""

        def __init__(self):
            self.left = io.BytesIO(data)

        def read(self, n=-1):
            return self.left.read(n)

        def readable(self):
            return True

    s3.put_object(Bucket="bucket", Key="stream", Body=Pipe(), ContentLength=len(data), ChecksumAlgorithm="CRC32")
    tell("stream", s3.get_object(Bucket="bucket", Key="stream")["Body"].read() == data)
    s3.put_object(Bucket="bucket", Key=ODD, Body=b"odd", Metadata={"note": "two   spaces"})
    tell("odd key", s3.get_object(Bucket="bucket", Key=ODD)["Body"].read())
    virtual = client("virtual")
    virtual.put_object(Bucket="bucket", Key="virtual/" + ODD, Body=b"host")
    tell("virtual host", virtual.get_object(Bucket="bucket", Key="virtual/" + ODD)["Body"].read())
    large = os.urandom(12 << 20)
    s3.upload_fileobj(io.BytesIO(large), "bucket", "large")
    tell("multipart", s3.get_object(Bucket="bucket", Key="large")["Body"].read() == large)
    tell("list", [o["Key"] for o in s3.list_objects_v2(Bucket="bucket", Prefix="")["Contents"] if o["Key"] == ODD] == [ODD])
    tell("caller", boto3.client("sts", endpoint_url=STS).get_caller_identity()["Arn"])
    url = s3.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": ODD}, ExpiresIn=3600)
    tell("presigned", subprocess.run(["curl", "-sS", url], capture_output=True, text=True).stdout)
    tell("the URL has placeholders", "PLACEHOLDER" in url)
    put = s3.generate_presigned_url("put_object", {"Bucket": "bucket", "Key": "put"}, ExpiresIn=60)
    subprocess.run(["curl", "-sS", "-T", "-", put], input=b"put by curl", check=True)
    tell("presigned put", s3.get_object(Bucket="bucket", Key="put")["Body"].read())
    identity = boto3.client("sts", endpoint_url=STS).generate_presigned_url("get_caller_identity", ExpiresIn=60, HttpMethod="GET")
    tell("presigned caller", "user/far" in subprocess.run(["curl", "-sS", identity], capture_output=True, text=True).stdout)


def tools():
    def aws(*args):
        run = subprocess.run([sys.executable, "-m", "awscli", *args], capture_output=True, text=True)
        return run.stdout + run.stderr

    with open("file", "w") as f:
        f.write("by the aws command line\n")
    aws("s3", "cp", "file", "s3://bucket/file", "--endpoint-url", S3)
    tell("aws s3 cp", aws("s3", "cp", "s3://bucket/file", "-", "--endpoint-url", S3))
    tell("aws sts", json.loads(aws("sts", "get-caller-identity", "--output", "json", "--endpoint-url", STS))["Account"])
    user = os.environ["AWS_ACCESS_KEY_ID"] + ":" + os.environ["AWS_SECRET_ACCESS_KEY"]
    curl = ["curl", "-sS", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", user, "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
    subprocess.run([*curl, "-T", "-", BUCKET + "/curl"], input=b"signed by curl", check=True)
    tell("curl", subprocess.run([*curl, BUCKET + "/curl"], capture_output=True, text=True).stdout)


def creds():
    return Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], os.environ.get("AWS_SESSION_TOKEN"))


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def chunks(key, parts, trailer, alter=lambda body: body):
    """Puts an object in signed chunks; botocore signs the request itself."""
    data = b"".join(parts)
    headers = {"X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else ""), "X-Amz-Decoded-Content-Length": str(len(data)), "Content-Encoding": "aws-chunked"}
    if trailer:
        headers["X-Amz-Trailer"] = "x-amz-checksum-crc32"
    request = AWSRequest(method="PUT", url=S3 + "/bucket/" + key, headers=headers, data=b"")

    class Seed(S3SigV4Auth):
        def payload(self, request):
            return headers["X-Amz-Content-SHA256"]

    c = creds()
    Seed(c, "s3", "us-east-1").add_auth(request)
    stamp, last = request.headers["X-Amz-Date"], request.headers["Authorization"].rsplit("Signature=", 1)[1]
    secret = mac(mac(mac(mac(("AWS4" + c.secret_key).encode(), stamp[:8]), "us-east-1"), "s3"), "aws4_request")
    scope = stamp[:8] + "/us-east-1/s3/aws4_request"
    empty, body = hashlib.sha256(b"").hexdigest(), b""
    for part in [*parts, b""]:
        last = mac(secret, "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, last, empty, hashlib.sha256(part).hexdigest()])).hex()
        body += b"%x;chunk-signature=%s\r\n" % (len(part), last.encode()) + part + (b"\r\n" if part else b"")
    if trailer:
        line = "x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        last = mac(secret, "\n".join(["AWS4-HMAC-SHA256-TRAILER", stamp, scope, last, hashlib.sha256((line + "\n").encode()).hexdigest()])).hex()
        body += (line + "\r\nx-amz-trailer-signature:" + last + "\r\n").encode()
    body = alter(body + b"\r\n")
    return send("PUT", S3 + "/bucket/" + key, {k: v for k, v in request.headers.items() if k.lower() != "content-length"}, body)


def send(method, url, headers, body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers, method=method)) as r:
            return r.status
    except urllib.error.HTTPError as e:
        text = e.read().decode()
        try:
            problem = json.loads(text)
            return problem["code"] + " " + problem["hint"]
        except ValueError:
            code, message = (re.search("<%s>(.*?)</%s>" % (t, t), text) for t in ("Code", "Message"))
            return code[1] + " " + message[1] if code and message else text
    except OSError as e:
        return "broken off " + type(e).__name__


def by_hand():
    parts = [os.urandom(65536), os.urandom(65536), b"end"]
    tell("chunks", chunks("chunks", parts, False))
    tell("chunks and a trailer", chunks("trailer", parts, True))
    s3 = client()
    tell("chunks came", all(s3.get_object(Bucket="bucket", Key=k)["Body"].read() == b"".join(parts) for k in ("chunks", "trailer")))


def refused():
    def failed(f):
        try:
            f()
            return "passed"
        except botocore.exceptions.ClientError as e:  # as a person reads it
            return "%s: %s" % (e.response["ResponseMetadata"]["HTTPStatusCode"], e)

    tell("another region", failed(lambda: client(region_name="eu-west-1").list_objects_v2(Bucket="bucket")))
    tell("another key", failed(lambda: client(aws_access_key_id="AKIAIOSFODNN7MYOWN00", aws_secret_access_key="mine").list_objects_v2(Bucket="bucket")))
    tell("another secret", failed(lambda: client(aws_secret_access_key="mine", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"]).list_objects_v2(Bucket="bucket")))
    tell("another service", failed(lambda: boto3.client("iam", endpoint_url=STS).list_users()))
    tell("unsigned", send("GET", S3 + "/bucket/whole", {}))
    tell("SigV2", send("GET", S3 + "/bucket/whole", {"Authorization": "AWS " + os.environ["AWS_ACCESS_KEY_ID"] + ":c2lnbmF0dXJl"}))
    tell("SigV4a", send("GET", S3 + "/bucket/whole", {"Authorization": "AWS4-ECDSA-P256-SHA256 Credential=x", "X-Amz-Region-Set": "*"}))
    tell("a placeholder elsewhere", send("GET", S3 + "/bucket/" + os.environ["AWS_SECRET_ACCESS_KEY"], {}))
    tell("an altered chunk", chunks("altered", [b"a" * 70000, b"b" * 70000], False, lambda b: b.replace(b"bbbb", b"bbbc", 1)))
    tell("a chunk too few", chunks("cut", [b"a" * 70000, b"b" * 70000], True, lambda b: b[:100000]))
    url = client().generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "whole"}, ExpiresIn=3600)
    tell("an altered URL", send("GET", url.replace("/whole", "/large"), {}))
    tell("another host", send("GET", url.replace("s3.test", "bucket.s3.test"), {}))
    old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    botocore.auth.get_current_datetime = lambda *a, **k: old
    tell("an old date", failed(lambda: client().list_objects_v2(Bucket="bucket")))


boto()
tools()
by_hand()
refused()
print("done")
