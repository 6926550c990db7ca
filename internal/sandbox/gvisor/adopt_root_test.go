//go:build root

package gvisor

const childDir = "COFFERDAM_TEST_CHILD"

func childMain(dir string) int { return 0 }
