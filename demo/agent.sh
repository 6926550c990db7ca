# The plain-command agent of the demo: it mends the comparison that forgets the
# major version (Masterminds/semver issue 141: "<=4.5" refuses 3.7.0).
set -eu
sed -i 's/} else if v\.Minor() > c\.con\.Minor() && !c\.minorDirty {/} else if v.Major() == c.con.Major() \&\& v.Minor() > c.con.Minor() \&\& !c.minorDirty {/' constraints.go
gofmt -l .
git diff --stat
