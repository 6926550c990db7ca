package claude

import (
	"context"
	"errors"

	"github.com/cofferdam/cofferdam/internal/credential/login/folder"
)

// Lock takes what Claude Code takes to renew the login of a folder. The second
// lock is for versions before; where it can't be made, Claude Code goes on
// without it, and so do we.
func Lock(ctx context.Context, f *folder.Folder, l *folder.Lock) error {
	if err := f.Hold(ctx, l, ".oauth_refresh.lock"); err != nil {
		return err
	}
	if err := f.HoldBeside(ctx, l, ".lock"); errors.Is(err, folder.ErrBusy) {
		return err
	}
	return nil
}

// Writing takes what Claude Code takes to write the file.
func Writing(ctx context.Context, f *folder.Folder, l *folder.Lock) error {
	return f.Hold(ctx, l, ".storage-write.lock")
}
