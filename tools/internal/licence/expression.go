package licence

import (
	"fmt"
	"regexp"
	"strings"
)

// Terms is a parsed SPDX expression in disjunctive form: the licensee picks one alternative, and is then bound by
// every licence in it.
type Terms [][]string

// Parse reads an SPDX licence expression of identifiers, AND, OR and parentheses. WITH and "+" change what an
// identifier means, so they stay part of it: "GPL-2.0 WITH Classpath-exception-2.0" is one licence, judged as such.
func Parse(expression string) (Terms, error) {
	p := expressionParser{rest: tokens.FindAllString(expression, -1)}
	terms, err := p.any()
	if err == nil && len(p.rest) > 0 {
		err = fmt.Errorf("unexpected %q", p.rest[0])
	}
	if err != nil {
		return nil, fmt.Errorf("SPDX expression %q: %w", expression, err)
	}
	return terms, nil
}

// Judge returns nil when at least one alternative is allowed for use, else what is wrong with the first.
func (t Terms) Judge(use Use) error {
	if len(t) == 0 {
		return ErrUnknown
	}
	first := Judge(t[0], use)
	for _, alternative := range t {
		if Judge(alternative, use) == nil {
			return nil
		}
	}
	return first
}

var (
	tokens     = regexp.MustCompile(`[()]|[^\s()]+`)
	identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*\+?$`)
)

type expressionParser struct{ rest []string }

func (p *expressionParser) any() (Terms, error) {
	terms, err := p.all()
	for err == nil && p.accept("OR") {
		var more Terms
		more, err = p.all()
		terms = append(terms, more...)
	}
	return terms, err
}

func (p *expressionParser) all() (Terms, error) {
	terms, err := p.one()
	for err == nil && p.accept("AND") {
		var more Terms
		if more, err = p.one(); err == nil {
			terms = product(terms, more)
		}
	}
	return terms, err
}

func (p *expressionParser) one() (Terms, error) {
	if p.accept("(") {
		terms, err := p.any()
		if err == nil && !p.accept(")") {
			err = fmt.Errorf("missing )")
		}
		return terms, err
	}
	id, err := p.identifier()
	if err == nil && p.accept("WITH") {
		var exception string
		exception, err = p.identifier()
		id += " WITH " + exception
	}
	return Terms{{id}}, err
}

func (p *expressionParser) identifier() (string, error) {
	if len(p.rest) == 0 {
		return "", fmt.Errorf("ends where an identifier should stand")
	}
	id := p.rest[0]
	if !identifier.MatchString(id) || isOperator(id) {
		return "", fmt.Errorf("%q is not an identifier", id)
	}
	p.rest = p.rest[1:]
	return id, nil
}

func (p *expressionParser) accept(token string) bool {
	if len(p.rest) == 0 || !strings.EqualFold(p.rest[0], token) {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func isOperator(token string) bool {
	switch strings.ToUpper(token) {
	case "AND", "OR", "WITH":
		return true
	}
	return false
}

func product(left, right Terms) Terms {
	var terms Terms
	for _, l := range left {
		for _, r := range right {
			terms = append(terms, append(append([]string{}, l...), r...))
		}
	}
	return terms
}
