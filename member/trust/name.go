package trust

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// MaxNameBytes leaves room for what goes around a name in a file's name.
const MaxNameBytes = 200

const (
	nameScheme = "meridian"
	namePrefix = nameScheme + "://agent/"
	nameHint   = "use letters, digits and -._~:@+="
)

// CheckName tells whether a certificate can hold an agent's name. Every
// character of a name stands for itself in a URI, so that a name has one
// spelling only.
func CheckName(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "a name is needed"
	case len(name) > MaxNameBytes:
		problem = fmt.Sprintf("a name of %d bytes; %d is the limit", len(name), MaxNameBytes)
	case name == "." || name == "..":
		problem = "that is not a name"
	case strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }):
		problem = "it holds a character that names do not"
	default:
		return nil
	}
	return &Error{Op: "check name", Subject: fmt.Sprintf("%.80q", name), Err: because(ErrInvalid, problem), Hint: nameHint}
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~:@+=", r)
}

func nameURI(name string) *url.URL {
	return &url.URL{Scheme: nameScheme, Host: "agent", Path: "/" + name}
}

// nameIn reads the one agent that a certificate names. Two would let a peer be
// whom it likes, and a URI that only looks like ours would be a guess.
func nameIn(c *x509.Certificate) (string, error) {
	found := ""
	for _, uri := range c.URIs {
		if uri.Scheme != nameScheme {
			continue
		}
		name, ours := strings.CutPrefix(uri.String(), namePrefix)
		switch {
		case !ours || CheckName(name) != nil:
			return "", because(ErrName, fmt.Sprintf("%.300q is not %sNAME", uri, namePrefix))
		case found != "":
			return "", because(ErrName, fmt.Sprintf("it names both %s and %s", found, name))
		}
		found = name
	}
	if found == "" {
		return "", because(ErrName, "it names no agent: it has no URI "+namePrefix+"NAME")
	}
	return found, nil
}
