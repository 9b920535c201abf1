# SPDX-License-Identifier: Apache-2.0
"""Training data of a draft: files of questions and texts, bags, verdict logs, composed requests, installed packages."""
