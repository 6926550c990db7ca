package install

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of what is fetched.
const (
	maxTarball  = 1 << 30
	maxDocument = 4 << 20
)

// document is what is read of the registry's description of a version.
type document struct {
	Version string `json:"version"`
	Dist    struct {
		Tarball   string `json:"tarball"`
		Integrity string `json:"integrity"`
	} `json:"dist"`
}

// fetch puts the package's tarball into dir and checks its digest.
func (s *Shelf) fetch(ctx context.Context, dir string, p *Package, source catalog.Source) (*os.File, error) {
	doc, err := s.describe(ctx, source)
	if err != nil {
		return nil, err
	}
	want := source.SHA512
	if told, ok := sha512Of(doc.Dist.Integrity); !ok {
		return nil, task.Fail(task.InputInvalid, fmt.Sprintf("the registry gives no sha512 digest for %s@%s", source.Package, source.Version), nil)
	} else if want == "" {
		want = told
	}
	tarball, err := s.tarball(doc.Dist.Tarball)
	if err != nil {
		return nil, err
	}
	resp, err := s.get(ctx, tarball)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, away(fmt.Errorf("%s answered %s", tarball, resp.Status))
	}
	s.mu.Lock()
	p.Total = max(resp.ContentLength, 0)
	s.mu.Unlock()
	file, err := os.OpenFile(filepath.Join(dir, "tarball"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, storage("the package can't be kept", err)
	}
	h := sha512.New()
	n, err := io.Copy(io.MultiWriter(file, h), io.LimitReader(progress{resp.Body, s, p}, maxTarball+1))
	got := base64.StdEncoding.EncodeToString(h.Sum(nil))
	switch {
	case err != nil:
		err = transfer(err)
	case n > maxTarball:
		err = task.Fail(task.LimitSize, "the package is larger than 1 GiB", nil)
	case got != want:
		err = task.Fail(task.InputInvalid, fmt.Sprintf(
			"the package %s@%s is not what it should be: its sha512 is %s where %s is expected; nothing of it was kept", source.Package, source.Version, got, want), nil)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.mu.Lock()
	p.SHA512 = got
	s.mu.Unlock()
	return file, nil
}

// transfer tells a full disk from a connection that broke.
func transfer(err error) error {
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return storage("the package can't be kept", err)
	}
	return away(err)
}

func away(err error) error {
	return task.Fail(task.InfraInternal, "the package can't be fetched from the registry: "+err.Error()+"; see that the worker's machine reaches it", err)
}

// describe asks the registry for the version.
func (s *Shelf) describe(ctx context.Context, source catalog.Source) (document, error) {
	var doc document
	resp, err := s.get(ctx, strings.TrimRight(s.o.Registry, "/")+"/"+url.PathEscape(source.Package)+"/"+url.PathEscape(source.Version))
	if err != nil {
		return doc, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return doc, task.Fail(task.InputNotFound, fmt.Sprintf("the registry has no version %s of %s", source.Version, source.Package), nil)
	default:
		return doc, away(fmt.Errorf("%s answered %s", s.o.Registry, resp.Status))
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return doc, away(err)
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.Version != source.Version {
		return doc, task.Fail(task.InputInvalid, fmt.Sprintf("the registry's description of %s@%s can't be read", source.Package, source.Version), err)
	}
	return doc, nil
}

// tarball checks where the registry says the package is: the same scheme and
// host as its own.
func (s *Shelf) tarball(raw string) (string, error) {
	base, berr := url.Parse(s.o.Registry)
	u, err := url.Parse(raw)
	if err := errors.Join(berr, err); err != nil {
		return "", task.Fail(task.InputInvalid, "the registry gives a package's address that can't be read", err)
	}
	return u.String(), within(base, u)
}

// within refuses an address at another place than the registry's own: what is
// fetched from there could be a service of this machine's network.
func within(registry, u *url.URL) error {
	if u.Scheme != registry.Scheme || u.Host != registry.Host || u.User != nil {
		return task.Fail(task.InputInvalid, fmt.Sprintf("the registry %s sends to another place (%.100q) for a package; that is refused", registry.Host, u.Scheme+"://"+u.Host), nil)
	}
	return nil
}

// staying is the client with redirects that stay at the registry.
func staying(c *http.Client, registry *url.URL) *http.Client {
	out := *c
	out.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) >= 5 {
			return errors.New("too many redirects")
		}
		return within(registry, r.URL)
	}
	return &out
}

func (s *Shelf) get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, away(err)
	}
	resp, err := s.o.Client.Do(req)
	if refused, ok := errors.AsType[*task.Failure](err); ok {
		return nil, refused
	}
	if err != nil {
		return nil, away(err)
	}
	return resp, nil
}

// sha512Of takes the sha512 digest out of a subresource integrity string.
func sha512Of(integrity string) (string, bool) {
	for part := range strings.FieldsSeq(integrity) {
		digest, ok := strings.CutPrefix(part, "sha512-")
		digest, _, _ = strings.Cut(digest, "?")
		if raw, err := base64.StdEncoding.DecodeString(digest); ok && err == nil && len(raw) == sha512.Size {
			return digest, true
		}
	}
	return "", false
}
