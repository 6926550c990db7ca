package host

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// maxProtected bounds the lists that a guest tells of.
const maxProtected = 8192

// Protect ends every process of the sandbox but the guest and takes rights on
// paths of the workspace away from what is started later. Asking the same again
// ends nothing and tells what became of it; asking for something else is refused.
func (c *Conn) Protect(ctx context.Context, p guest.Protection) (guest.Protected, error) {
	answer, err := c.call(ctx, guest.Protect, p)
	if err != nil {
		return guest.Protected{}, wrap("protect", err)
	}
	if answer.Protected == nil {
		return guest.Protected{}, wrap("protect", guest.Errorf(guest.ReasonInternal, "the guest does not say what it protected"))
	}
	done := *answer.Protected
	for _, list := range []*[]string{&done.Placeholders, &done.Replaced, &done.Pinned, &done.Also} {
		if len(*list) > maxProtected {
			return guest.Protected{}, wrap("protect", guest.Errorf(guest.ReasonInternal, "the guest tells of %d paths", len(*list)))
		}
	}
	return done, nil
}
