package outbound

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/sigv4"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxHashed of a body that must be hashed before its request is signed: AWS's
// own services take 6 MiB and less in most calls, and objects come with a digest.
const maxHashed = 8 << 20

// signer is a carrier whose placeholder signs the request inside, so that all of
// it is read before anything is lent.
type signer interface {
	// read verifies how a request is signed, and takes that out of what is left to
	// look at. hold takes the body into memory and leaves the same body in the
	// request. Errors are for the program inside.
	read(l *task.Lease, r *http.Request, rest *remainder, hold func() ([]byte, bool)) (*signed, error)
	// sign signs what goes out as it was signed inside. An error means that it must
	// not go; it never holds the value.
	sign(s *signed, value Secret, out *http.Request) error
}

// signed is what was verified of a request.
type signed struct {
	claim  *sigv4.Claim
	keys   task.AWSKeys // that stand for the real ones
	digest string       // of the body, where it was needed
}

// awsCarrier signs requests anew (AWS Signature Version 4).
type awsCarrier struct{}

func (awsCarrier) knows(l *task.Lease) bool {
	_, err := task.ParseAWSKeys(l.Placeholder)
	return err == nil && l.Settings[task.SettingRegion] != "" && l.Settings[task.SettingServices] != ""
}

// take is never enough: a signature is of the body too. See read.
func (awsCarrier) take(*task.Lease, *remainder) bool { return false }

func (awsCarrier) fits(_ *task.Lease, value Secret) bool {
	_, err := task.ParseAWSKeys(value.Reveal())
	return err == nil
}

func (awsCarrier) put(*task.Lease, Secret, *http.Request) error {
	return errors.New("what is signed anew must have been read")
}

func (awsCarrier) read(l *task.Lease, r *http.Request, rest *remainder, hold func() ([]byte, bool)) (*signed, error) {
	keys, err := task.ParseAWSKeys(l.Placeholder)
	if err != nil {
		return nil, errors.New("the lease has no keys")
	}
	m := messageOf(r, r.Header.Clone())
	if len(m.Header["Content-Length"]) == 0 && r.ContentLength >= 0 {
		m.Header["Content-Length"] = []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	if len(r.TransferEncoding) > 0 {
		m.Header["Transfer-Encoding"] = []string{strings.Join(r.TransferEncoding, ", ")}
	}
	s := &signed{keys: keys}
	if s.claim, err = sigv4.Parse(m); err != nil {
		return nil, err
	}
	bounds := sigv4.Bounds{Regions: strings.Split(l.Settings[task.SettingRegion], ","), Services: strings.Split(l.Settings[task.SettingServices], ",")}
	if err := s.claim.Allow(keys.ID, keys.Token.Reveal(), bounds, time.Now()); err != nil {
		return nil, err
	}
	if s.claim.Hashes() {
		body, ok := hold()
		if !ok {
			return nil, errors.New("the body has no digest in X-Amz-Content-Sha256 and is larger than 8 MiB, or too many such requests wait; have the client send the digest")
		}
		s.digest = sigv4.Digest(body)
	}
	if err := s.claim.Verify(m, keys.Secret.Reveal(), s.digest); err != nil {
		return nil, err
	}
	if !rest.keyless("Authorization") {
		return nil, errors.New("another key stands beside the signature")
	}
	delete(rest.header, "Authorization")
	delete(rest.header, "X-Amz-Security-Token")
	rest.query, _ = sigv4.Bare(rest.query) // Parse read it
	return s, nil
}

// messageOf is what is signed of a request.
func messageOf(r *http.Request, header http.Header) sigv4.Message {
	m := sigv4.Message{Method: r.Method, Host: r.Host, Path: SentPath(r.URL), Query: r.URL.RawQuery, Header: header, Length: r.ContentLength}
	if m.Method == "" {
		m.Method = http.MethodGet
	}
	if m.Host == "" {
		m.Host = r.URL.Host
	}
	if r.Body == nil || r.Body == http.NoBody {
		m.Length = 0
	}
	return m
}

func (awsCarrier) sign(s *signed, value Secret, out *http.Request) error {
	keys, err := task.ParseAWSKeys(value.Reveal())
	if err != nil {
		return errors.New("what was lent are no keys")
	}
	m := messageOf(out, out.Header)
	if out.ContentLength == 0 && m.Length == 0 && out.Body != nil && out.Body != http.NoBody {
		m.Length = -1 // of a client's request: not known
	}
	made, err := s.claim.Sign(m, keys.ID, keys.Secret.Reveal(), keys.Token.Reveal(), s.digest, time.Now())
	if err != nil {
		return err
	}
	body := out.Body
	if body == nil {
		body = http.NoBody
	}
	anew, err := s.claim.Body(m, body, made, s.keys.Secret.Reveal(), keys.Secret.Reveal())
	if err != nil {
		return err
	}
	if anew != nil && body == http.NoBody {
		// Nothing is sent, so what was declared of it is judged now.
		if _, err := io.Copy(io.Discard, anew); err != nil {
			return err
		}
	} else if anew != nil {
		out.Body, out.GetBody = joined{anew, body}, nil
	}
	out.URL.RawQuery = made.Query
	for name, text := range map[string]string{"Authorization": made.Authorization, "X-Amz-Security-Token": made.Token} {
		if delete(out.Header, name); text != "" {
			out.Header[name] = []string{text}
		}
	}
	return nil
}

// back puts what stands for the keys into the header of an answer that repeats
// them, as one does that sends on to a presigned URL.
func (awsCarrier) back(l *task.Lease, value Secret, res *http.Response) error {
	have, stand := task.AWSTexts(value.Reveal()), task.AWSTexts(l.Placeholder)
	for i, text := range have {
		with := mark
		if i < len(stand) {
			with = stand[i]
		}
		for _, values := range res.Header {
			for j, v := range values {
				values[j] = strings.ReplaceAll(strings.ReplaceAll(v, text, with), url.QueryEscape(text), with)
			}
		}
	}
	return nil
}

// standIns are the texts that stand for a lease's value inside.
func standIns(l *task.Lease) []string {
	if kindOf(l) == task.KindAWS {
		return task.AWSTexts(l.Placeholder)
	}
	if l.Placeholder == "" {
		return nil
	}
	return []string{l.Placeholder}
}

// hold takes a body into memory, up to most bytes, and leaves the same body in
// the request. held is what must be given back.
func (b *Bodies) hold(r *http.Request, most int64) (body []byte, whole bool, held int64) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true, 0
	}
	if r.ContentLength > most {
		return nil, false, 0
	}
	var buffer bytes.Buffer
	for !whole && int64(buffer.Len()) <= most && b.take(bodyStep) {
		held += bodyStep
		_, err := io.CopyN(&buffer, r.Body, bodyStep)
		if whole = errors.Is(err, io.EOF); err != nil && !whole {
			break
		}
	}
	if body = buffer.Bytes(); !whole || int64(len(body)) > most {
		return nil, false, held
	}
	r.Body = joined{bytes.NewReader(body), r.Body}
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(body)), nil, nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return body, true, held
}
