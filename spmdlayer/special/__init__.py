"""Special functions, named as in scipy.special: elementwise, local or distributed, with gradients of any order.

They take tensors, arrays and numbers, broadcast as NumPy's, and communicate
nothing but what the layouts of distributed operands need.  NumPy suffices for
the logistic functions, the entropies, erf, erfc and ndtr; the others need SciPy
(the extra `scipy`), or CuPy for its arrays.
"""

from ..ops.softmax import log_softmax, logsumexp, softmax
from .bessel_functions import i0, i0e, i1, i1e, iv, ive, j0, j1, jv, k0, k0e, k1, k1e, kv, kve, y0, y1, yv
from .error_functions import dawsn, erf, erfc, erfcinv, erfcx, erfi, erfinv, log_ndtr, ndtr, ndtri
from .gamma_functions import (
    beta,
    betainc,
    betaln,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    hyp1f1,
    hyp2f1,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    psi,
    zeta,
)
from .integrals import exp1, expi, expn, fresnel, sici, spence
from .logarithmic import entr, expit, kl_div, log_expit, logit, rel_entr, softplus, xlog1py, xlogy
