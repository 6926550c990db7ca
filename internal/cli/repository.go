package cli

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/gitrepo"
)

// sendRepository uploads the caller's repository and returns how a task names it.
func (j *runJob) sendRepository(ctx context.Context) (api.Repo, error) {
	o := j.o
	remote, err := gitrepo.Remote(o.repo)
	if err != nil {
		return api.Repo{}, err
	}
	if remote {
		return api.Repo{URL: o.repo, Name: o.repo, Ref: o.ref, Credential: o.repoCredential}, nil
	}
	if o.repoCredential != "" {
		return api.Repo{}, usage("--repo-credential is for a repository that is given as a URL; this one is read here and sent")
	}
	r, err := gitrepo.Open(ctx, o.repo)
	if err != nil {
		return api.Repo{}, err
	}
	s, err := r.Resolve(ctx, o.ref)
	if err != nil {
		return api.Repo{}, err
	}
	if n := r.Dirty(ctx); n > 0 {
		j.progress.Note(fmt.Sprintf("%d files are changed or untracked and are not sent; what is committed is", n))
	}
	f, n, err := r.Bundle(ctx, s, o.key != "")
	if err != nil {
		return api.Repo{}, err
	}
	defer f.Close()
	blob, err := j.c.UploadBundle(ctx, f, n)
	if err != nil {
		return api.Repo{}, err
	}
	return api.Repo{Bundle: blob.Digest, Name: r.Top, Ref: s.Ref}, nil
}
