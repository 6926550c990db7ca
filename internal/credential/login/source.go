package login

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/credential/login/folder"
	"github.com/cofferdam/cofferdam/internal/task"
)

// source is where the text of a login is. Errors are told to people and hold
// nothing of it.
type source interface {
	read(ctx context.Context) ([]byte, error)
	// lock keeps others from renewing, until close.
	lock(ctx context.Context) error
	// change replaces the text by what to makes of it; nil: it stays.
	change(ctx context.Context, to func(text []byte) ([]byte, error)) error
	close()
	// advice is what a person does to sign in again.
	advice(v vendor) string
}

func (m *Minter) open(_ context.Context, c task.Credential, v vendor) (source, error) {
	dir := c.Settings[settingDir]
	if dir == "" {
		return &own{vault: m.Vault, of: c}, nil
	}
	f, err := folder.Open(dir)
	if err != nil {
		return nil, m.failed(c, v, err)
	}
	return &file{vendor: v, folder: f}, nil
}

// file is a login in the tool's folder.
type file struct {
	vendor vendor
	folder *folder.Folder
	held   folder.Lock
}

func (s *file) read(context.Context) ([]byte, error) { return s.folder.Read(s.vendor.file) }

func (s *file) lock(ctx context.Context) error { return s.vendor.lock(ctx, s.folder, &s.held) }

func (s *file) change(ctx context.Context, to func([]byte) ([]byte, error)) error {
	var writing folder.Lock
	defer writing.Free()
	if err := s.vendor.writing(ctx, s.folder, &writing); err != nil {
		return err
	}
	text, err := s.folder.Read(s.vendor.file)
	if err != nil {
		return err
	}
	if text, err = to(text); err != nil || text == nil {
		return err
	}
	return s.folder.Write(s.vendor.file, text)
}

func (s *file) close() {
	s.held.Free()
	_ = s.folder.Close() // read only
}

func (s *file) advice(v vendor) string { return v.again + ", as who the folder belongs to" }

// own is a login of our own, in the vault. Turns are lock enough: nobody else has
// it.
type own struct {
	vault Vault
	of    task.Credential
}

func (s *own) read(ctx context.Context) ([]byte, error) {
	value, err := s.vault.Newest(ctx, s.of)
	return []byte(value.Reveal()), err
}

func (s *own) lock(context.Context) error { return nil }

func (s *own) change(ctx context.Context, to func([]byte) ([]byte, error)) error {
	text, err := s.read(ctx)
	if err != nil {
		return err
	}
	if text, err = to(text); err != nil || text == nil {
		return err
	}
	return s.vault.Renew(ctx, s.of, task.NewSecret(string(text)))
}

func (s *own) close() {}

func (s *own) advice(v vendor) string {
	return fmt.Sprintf("%s, then cofferdam credential rm %s and add it anew", v.again, s.of.Name)
}
