package report

// student is how many standard errors a t interval of Confidence reaches, with
// so many degrees of freedom, at least one.
func student(freedom int) float64 {
	if freedom <= len(studentFew) {
		return studentFew[freedom-1]
	}
	// Cornish and Fisher's expansion around the normal distribution: here its
	// error is below 1e-5.
	const z = 1.959963984540054
	const z3, z5, z7 = z * z * z, z * z * z * z * z, z * z * z * z * z * z * z
	n := float64(freedom)
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z7+19*z5+17*z3-15*z)/(384*n*n*n)
}

// studentFew are the 0.975 quantiles of Student's distribution from one degree of
// freedom on.
var studentFew = [...]float64{
	12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
	2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
}
