"""Where what is."""

from django.urls import path

from documents_django import views

urlpatterns = [
    path("documents", views.documents),
    path("documents/<str:task_id>", views.document),
    path("callbacks/<str:handler_key>", views.callback),
]
