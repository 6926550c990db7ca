"""Makes botocore.json: requests that botocore signed twice, with the keys that
stand in for others and with those others. README.md says how to run it."""

import datetime
import json
import sys
from urllib.parse import urlsplit

import botocore
import botocore.auth
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

NOW = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.timezone.utc)
botocore.auth.get_current_datetime = lambda *a, **k: NOW.replace(tzinfo=None) if a or k else NOW

INSIDE = ("AKIAPLACEHOLDERABCDE", "placeholderabcdefghijklmnopqrstuvwxyz234", None)
SESSION_INSIDE = ("ASIAPLACEHOLDERABCDE", "placeholderabcdefghijklmnopqrstuvwxyz234", "placeholder/token+of==session")
LASTING = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None)
SESSION = ("ASIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "IQoJb3JpZ2luX2VjE/token+with==signs")


# These are signed with every kind of keys on each side.
ALL = ("s3 get", "s3 put, trailer", "s3 presigned", "sts", "sts presigned")


def request(method, url, headers=None, data=b"", payload_signing=None, streaming=None):
    r = AWSRequest(method=method, url=url, headers=headers or {}, data=data)
    r.context["client_config"] = None
    if payload_signing is not None:
        r.context["client_config"] = Config(s3={"payload_signing_enabled": payload_signing})
    if streaming:
        r.context["checksum"] = {"request_algorithm": {"in": "trailer", "algorithm": "crc32"}}
    return r


def signed(auth, service, keys, args, region="us-east-1", **more):
    r = request(*args[:2], **args[2])
    if keys[2] is None:
        creds = Credentials(keys[0], keys[1])
    else:
        creds = Credentials(keys[0], keys[1], keys[2])
    auth(creds, service, region, **more).add_auth(r)
    url = urlsplit(r.prepare().url)
    return {
        "method": r.method, "host": r.headers.get("Host") or url.netloc, "path": url.path, "query": url.query,
        "header": [[k, v] for k, v in r.headers.items() if k.lower() != "host"],
        "body": (args[2].get("data") or b"").decode(),
    }


def case(name, auth, service, args, region="us-east-1", **more):
    out = []
    kinds = [("", INSIDE, LASTING), ("/session", SESSION_INSIDE, SESSION), ("/token added", INSIDE, SESSION), ("/token dropped", SESSION_INSIDE, LASTING)]
    for kind, inside, outside in kinds[: 4 if name in ALL else 1]:
        out.append({
            "name": name + kind, "service": service, "region": region,
            "insideKeys": [k or "" for k in inside], "outsideKeys": [k or "" for k in outside],
            "inside": signed(auth, service, inside, args, region, **more), "outside": signed(auth, service, outside, args, region, **more),
        })
    return out


S3 = "https://bucket.s3.us-east-1.amazonaws.com"
form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
cases = [
    *case("s3 get", S3SigV4Auth, "s3", ("GET", S3 + "/key", {})),
    *case("s3 path style, with a port", S3SigV4Auth, "s3", ("GET", "https://s3.test:9443/bucket/key", {})),
    *case("s3 key of many kinds", S3SigV4Auth, "s3", ("GET", S3 + "/a%20b%2Bc/%C3%A4%E2%82%AC/%25/x%3Dy%26z", {})),
    *case("s3 key with dots and slashes", S3SigV4Auth, "s3", ("GET", S3 + "//a/./b/../c//", {})),
    *case("s3 query", S3SigV4Auth, "s3", ("GET", S3 + "/?list-type=2&prefix=a%2Fb&delimiter=%2F&encoding-type=url&start-after=", {})),
    *case("s3 query without values", S3SigV4Auth, "s3", ("GET", S3 + "/key?acl", {})),
    *case("s3 multipart", S3SigV4Auth, "s3", ("POST", S3 + "/key?uploads", {"headers": {"x-amz-server-side-encryption": "AES256"}})),
    *case("s3 put, digest", S3SigV4Auth, "s3", ("PUT", S3 + "/key", {"data": b"some text", "payload_signing": True, "headers": {"Content-Type": "text/plain", "x-amz-meta-note": "  two   spaces  "}})),
    *case("s3 put, unsigned", S3SigV4Auth, "s3", ("PUT", S3 + "/key", {"data": b"some text", "payload_signing": False})),
    *case("s3 put, trailer", S3SigV4Auth, "s3", ("PUT", S3 + "/key", {
        "data": b"9\r\nsome text\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", "streaming": True,
        "headers": {"Content-Encoding": "aws-chunked", "x-amz-trailer": "x-amz-checksum-crc32", "X-Amz-Decoded-Content-Length": "9"},
    })),
    *case("s3 presigned", S3SigV4QueryAuth, "s3", ("GET", S3 + "/a%20key?response-content-type=text%2Fplain&versionId=null", {}), expires=900),
    *case("s3 presigned put", S3SigV4QueryAuth, "s3", ("PUT", S3 + "/key", {"headers": {"x-amz-acl": "private"}}), expires=900),
    *case("sts", SigV4Auth, "sts", ("POST", "https://sts.us-east-1.amazonaws.com/", {"data": b"Action=GetCallerIdentity&Version=2011-06-15", "headers": form})),
    *case("sts presigned", SigV4QueryAuth, "sts", ("GET", "https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15", {}), expires=900),
    *case("dynamodb", SigV4Auth, "dynamodb", ("POST", "https://dynamodb.eu-central-1.amazonaws.com/", {
        "data": b'{"TableName":"t"}', "headers": {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.Scan"},
    }), region="eu-central-1"),
    *case("a path that is encoded twice", SigV4Auth, "lambda", ("GET", "https://lambda.us-east-1.amazonaws.com/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A1%3Afunction%3Af/policy?Qualifier=%24LATEST", {})),
    *case("a path that is normalised", SigV4Auth, "execute-api", ("GET", "https://abc.execute-api.us-east-1.amazonaws.com//stage/./a/../b%20c/", {})),
    *case("a query that is sorted", SigV4Auth, "execute-api", ("GET", "https://abc.execute-api.us-east-1.amazonaws.com/p?b=2&a=3&a=1&B=&A&a-b=1&a.b=2&%C3%A4=%20", {})),
    *case("delete without a body", SigV4Auth, "execute-api", ("DELETE", "https://abc.execute-api.us-east-1.amazonaws.com/p", {})),
]
lines = ",\n".join(json.dumps(c, sort_keys=True) for c in cases)
sys.stdout.write('{"botocore": "%s", "now": "%s", "cases": [\n%s\n]}\n' % (botocore.__version__, NOW.strftime("%Y%m%dT%H%M%SZ"), lines))
