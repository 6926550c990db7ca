package sigv4

import (
	"slices"
	"strings"
)

// What may stand in the place of the body's digest.
const (
	unsigned         = "UNSIGNED-PAYLOAD"
	chunkedSigned    = "STREAMING-" + algorithm + "-PAYLOAD"
	chunkedTrailer   = "STREAMING-" + algorithm + "-PAYLOAD-TRAILER"
	unsignedTrailer  = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	maxDecoded       = 5 << 40 // of an object
	maxTrailers      = 8
	trailerSignature = "x-amz-trailer-signature"
)

// readPayload reads what stands for the body's digest.
func (c *Claim) readPayload(m Message, params []param) error {
	values := slices.Clone(m.Header["X-Amz-Content-Sha256"])
	for _, p := range params {
		if strings.EqualFold(p.name, "x-amz-content-sha256") {
			if !c.presigned {
				return refuse("X-Amz-Content-Sha256 belongs in the header of a request that is not presigned")
			}
			values = append(values, p.value)
		}
	}
	if len(values) > 1 {
		return refuse("X-Amz-Content-Sha256 stands twice")
	}
	if len(values) == 0 {
		if c.presigned && simple(c.scope.service) {
			c.payload = unsigned
		}
		return nil
	}
	c.payload = values[0]
	switch {
	case c.payload == unsigned, len(c.payload) == 64 && all(c.payload, isHex):
		return nil
	case c.Chunked() && c.presigned:
		return refuse("a presigned URL carries no chunks that are signed or have trailers")
	case c.Chunked():
		_, _, err := c.chunks(m)
		return err
	case strings.Contains(c.payload, "ECDSA"):
		return refuse("Signature Version 4a (%s) is not signed anew here; set the client to Signature Version 4", clip(c.payload))
	case strings.HasPrefix(c.payload, "STREAMING-"):
		return refuse("%s is not signed anew here", clip(c.payload))
	}
	return refuse("X-Amz-Content-Sha256 is neither a digest in lower-case hexadecimal nor a word that is known")
}

// Chunked says whether the body comes in chunks of AWS's own.
func (c *Claim) Chunked() bool {
	return c.payload == chunkedSigned || c.payload == chunkedTrailer || c.payload == unsignedTrailer
}

// Hashes says whether the body must be hashed before the request can be
// verified, since nothing stands for its digest.
func (c *Claim) Hashes() bool { return c.payload == "" }

// chunks reads what is declared of a body in chunks: how long it is without
// their frames, and the names of its trailers.
func (c *Claim) chunks(m Message) (decoded int64, trailers []string, err error) {
	lengths := m.Header["X-Amz-Decoded-Content-Length"]
	if len(lengths) != 1 {
		return 0, nil, refuse("a body in chunks must have one X-Amz-Decoded-Content-Length header")
	}
	decoded, ok := decimal(lengths[0], maxDecoded)
	if !ok || m.Length >= 0 && m.Length <= decoded {
		return 0, nil, refuse("X-Amz-Decoded-Content-Length is no length that the body can have")
	}
	for _, line := range m.Header["X-Amz-Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.Trim(name, " \t"))
			if name == "" || !all(name, isFieldName) || !trailing(name) || slices.Contains(trailers, name) {
				return 0, nil, refuse("X-Amz-Trailer must name checksums or metadata, each once")
			}
			trailers = append(trailers, name)
		}
	}
	if len(trailers) > maxTrailers {
		return 0, nil, refuse("more than %d trailers", maxTrailers)
	}
	if c.payload == chunkedSigned && len(trailers) > 0 {
		return 0, nil, refuse("X-Amz-Trailer needs %s or %s", chunkedTrailer, unsignedTrailer)
	}
	return decoded, trailers, nil
}

// trailing says whether a trailer's name may come behind a body: some servers
// take a trailer for a header.
func trailing(name string) bool {
	return strings.HasPrefix(name, "x-amz-checksum-") || strings.HasPrefix(name, "x-amz-meta-")
}
