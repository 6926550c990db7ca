package codex

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/credential/login/folder"
)

// Lock takes what Codex takes before it reads the file again to write it. Held
// from before a login is renewed, it lets no Codex write meanwhile.
func Lock(ctx context.Context, f *folder.Folder, l *folder.Lock) error {
	return f.Flock(ctx, l, "auth.lock")
}

// Writing takes what Codex takes to write the file.
func Writing(ctx context.Context, f *folder.Folder, l *folder.Lock) error {
	return f.Flock(ctx, l, "auth.json.lock")
}
